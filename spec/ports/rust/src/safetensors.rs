//! foreign-bases.md: what a safetensors file is. u64 size of a header of JSON, the header, the tensors' bytes.

use crate::reader::Reader;
use crate::section::{bits_of_dtype, size_of_shape, Loss, Tensor};
use crate::snapshot::Fingerprint;
use std::collections::HashSet;

const MAX_HEADER: u64 = 100_000_000;
const MAX_DEPTH: u32 = 64; // of objects and arrays

/// The tensors of a safetensors file. None if the file is not one in all respects.
pub(crate) fn tensors_of(file: &[u8]) -> Option<Vec<Tensor>> {
    let mut input = Reader::of_file(file);
    let header_size = input.u64().ok().filter(|&size| size <= MAX_HEADER)?;
    let header = std::str::from_utf8(input.take_u64(header_size).ok()?).ok()?;
    let mut json = Json { text: header.as_bytes(), depth: 0 };
    let (data_start, mut tensors) = (input.position as u64, Vec::new());
    if !header.starts_with('{') {
        return None;
    }
    json.object(|json, name| {
        if name == "__metadata__" {
            json.skip()
        } else {
            tensors.push(tensor(json, name, data_start)?);
            Some(())
        }
    })?;
    if json.next().is_some() {
        return None;
    }
    // one after another, without gaps; bytes may follow the last
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.size));
    let end = tensors.iter().try_fold(data_start, |end, tensor| if tensor.offset == end { end.checked_add(tensor.size) } else { None })?;
    if end > file.len() as u64 {
        return None;
    }
    Some(tensors)
}

/// A tensor, under the rules of section 4.1.
fn tensor(json: &mut Json<'_>, name: String, data_start: u64) -> Option<Tensor> {
    let (mut dtype, mut shape, mut range) = (None, None, None);
    json.object(|json, field| {
        match &field[..] {
            "dtype" => dtype = Some(json.string()?),
            "shape" => shape = Some(json.sizes()?),
            "data_offsets" => range = Some(json.sizes()?),
            _ => json.skip()?,
        }
        Some(())
    })?;
    let (start, end) = match range?[..] {
        [start, end] => (start, end),
        _ => return None,
    };
    let (offset, size) = (data_start.checked_add(start)?, end.checked_sub(start)?);
    let (dtype, shape): (String, Vec<u64>) = (dtype?, shape?);
    let plain = name.len() <= 65_535 && (1..=32).contains(&dtype.len()) && shape.len() <= 32 && !name.contains('\0') && !dtype.contains('\0');
    let fits = bits_of_dtype(dtype.as_bytes()).map_or(true, |bits| size_of_shape(bits, &shape) == Some(size));
    if plain && fits {
        let (name, dtype) = (name.into_bytes(), dtype.into_bytes());
        Some(Tensor { name, dtype, shape, offset, size, loss: Loss::default(), fingerprint: Fingerprint::default() })
    } else {
        None
    }
}

/// JSON as RFC 8259 has it, no deeper than `MAX_DEPTH`, no key twice in an object. None: something else.
struct Json<'a> {
    text: &'a [u8], // what is left of a valid UTF-8 string
    depth: u32,
}

impl Json<'_> {
    /// The next character that is no white space.
    fn next(&mut self) -> Option<u8> {
        let next = self.peek()?;
        self.text = &self.text[1..];
        Some(next)
    }

    fn peek(&mut self) -> Option<u8> {
        let start = self.text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).unwrap_or(self.text.len());
        self.text = &self.text[start..];
        self.text.first().copied()
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.text.split_first()?;
        self.text = rest;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.next().filter(|&next| next == wanted).map(|_| ())
    }

    /// Takes the opening bracket, then what `element` takes, with commas between, then the closing bracket.
    fn between(&mut self, brackets: [u8; 2], mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(brackets[0])?;
        self.depth = Some(self.depth + 1).filter(|&depth| depth <= MAX_DEPTH)?;
        if self.peek()? == brackets[1] {
            self.next();
        } else {
            loop {
                element(self)?;
                match self.next()? {
                    b',' => {}
                    end if end == brackets[1] => break,
                    _ => return None,
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// `value` is called for each key and takes its value.
    fn object(&mut self, mut value: impl FnMut(&mut Self, String) -> Option<()>) -> Option<()> {
        let mut keys = HashSet::new();
        self.between([b'{', b'}'], |json| {
            let key = json.string()?;
            json.expect(b':')?;
            if !keys.insert(key.clone()) {
                return None;
            }
            value(json, key)
        })
    }

    /// An array of whole numbers below 2^63, without sign, fraction and exponent.
    fn sizes(&mut self) -> Option<Vec<u64>> {
        let mut sizes = Vec::new();
        self.between([b'[', b']'], |json| {
            json.peek()?;
            let digits = json.digits()?;
            if digits.len() > 1 && digits[0] == b'0' {
                return None;
            }
            let size: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
            sizes.push(size as u64);
            Some(())
        })?;
        Some(sizes)
    }

    /// Takes any value; what it is does not matter.
    fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(|json, _| json.skip()),
            b'[' => self.between([b'[', b']'], Json::skip),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text = self.text.strip_prefix(word)?;
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.word(b"-");
        if self.word(b"0").is_none() {
            self.digits()?;
        }
        if self.word(b".").is_some() {
            self.digits()?;
        }
        if self.word(b"e").or_else(|| self.word(b"E")).is_some() {
            let _ = self.word(b"+").or_else(|| self.word(b"-"));
            self.digits()?;
        }
        Some(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<&[u8]> {
        let count = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.text.split_at(count);
        self.text = rest;
        Some(digits).filter(|digits| !digits.is_empty())
    }

    fn string(&mut self) -> Option<String> {
        self.expect(b'"')?;
        let mut string = Vec::new();
        loop {
            match self.byte()? {
                b'"' => return String::from_utf8(string).ok(),
                b'\\' => string.extend(self.escaped()?.encode_utf8(&mut [0; 4]).bytes()),
                0..=31 => return None,
                byte => string.push(byte),
            }
        }
    }

    /// After a backslash.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.byte()? {
            escape @ (b'"' | b'\\' | b'/') => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.utf16()?,
            _ => return None,
        })
    }

    /// After \u: four hexadecimal digits, or a surrogate pair.
    fn utf16(&mut self) -> Option<char> {
        let high = self.hexadecimal()?;
        let mut units = vec![high];
        if (0xD800..0xDC00).contains(&high) {
            self.word(b"\\u")?;
            units.push(self.hexadecimal()?);
        }
        char::decode_utf16(units).next()?.ok()
    }

    fn hexadecimal(&mut self) -> Option<u16> {
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | char::from(self.byte()?).to_digit(16)? as u16))
    }
}
