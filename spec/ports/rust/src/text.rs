//! Section 4.3: header text, what a safetensors header has for the tensors of a file.

use crate::section::Tensor;

/// Where the text of each tensor starts, with the comma in front of it, and where the last one ends. The text itself is made where it is wanted.
pub(crate) struct Text {
    starts: Vec<u64>,
}

impl Text {
    pub fn new(tensors: &[Tensor]) -> Text {
        let mut starts = vec![0];
        let mut end = 0;
        for tensor in tensors {
            let [front, name, back] = parts(tensors, tensor);
            end += (front.len() + name.len() + back.len()) as u64;
            starts.push(end);
        }
        Text { starts }
    }

    pub fn size(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Appends `size` bytes from `at` on, which were found to be there.
    pub fn copy(&self, tensors: &[Tensor], at: u64, size: u64, out: &mut Vec<u8>) {
        let wanted = out.len() + size as usize;
        let first = self.starts.partition_point(|&start| start <= at) - 1;
        let mut skipped = (at - self.starts[first]) as usize;
        for tensor in &tensors[first..] {
            for part in parts(tensors, tensor) {
                let rest = &part[skipped.min(part.len())..];
                skipped -= part.len() - rest.len();
                out.extend(&rest[..rest.len().min(wanted - out.len())]);
            }
            if out.len() == wanted {
                break;
            }
        }
    }
}

/// What stands in front of the name, the name, and what follows it.
fn parts<'a>(tensors: &[Tensor], tensor: &'a Tensor) -> [std::borrow::Cow<'a, [u8]>; 3] {
    let front: &[u8] = if std::ptr::eq(tensor, &tensors[0]) { b"\"" } else { b",\"" };
    let mut back = b"\":{\"dtype\":\"".to_vec();
    back.extend(&tensor.dtype);
    back.extend(b"\",\"shape\":[");
    let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
    back.extend(shape.join(",").bytes());
    let start = tensor.offset - tensors[0].offset;
    back.extend(format!("],\"data_offsets\":[{},{}]}}", start, start + tensor.size).bytes());
    [front.into(), tensor.name[..].into(), back.into()]
}
