"""Seeds for the harnesses of the command's readers, used by seeds.py: from the generators of the tests, and small ones made here."""
import os
import random
import struct
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'tests', 'command'), os.path.join(HERE, '..', 'spec')]
from lmc_decode import crc32c  # noqa: E402
from test_checkpoints import F, SAMPLES, archive, metadata, pickled, torch_file  # noqa: E402
from case import gguf, npy, safetensors, safetensors_raw  # noqa: E402


def string(text):
    return struct.pack('<Q', len(text)) + text


def container_files():
    """Pairs of kind and file; kind: 1 safetensors, 2 GGUF, 3 NumPy."""
    data = bytes(range(96))
    yield 1, safetensors([])
    yield 1, safetensors([('w', 'F32', [2, 3], data[:24]), ('b', 'BF16', [4], data[:8]), ('e', 'F16', [0, 5], b''), ('s', 'F64', [], data[:8])])
    yield 1, safetensors([('w', 'F4', [3, 4], data[:6]), ('x', 'NEW', [7], data[:5])], metadata={'format': 'pt', 'a': 'b'}, tail=b'tail')
    yield 1, safetensors([('layers.%d.w' % i, 'U8', [2], b'ab') for i in range(20)], pad=1)
    yield 1, safetensors_raw('{"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}', data[:16])
    yield 1, safetensors_raw('{"a":{"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,9223372036854775807]}}')
    yield 1, safetensors_raw('{"\\u00e4":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":[[[[1e400]]]]}}', b'x')
    yield 2, gguf([])
    yield 2, gguf([('a', 'F32', [2, 3], data[:24]), ('b', 'Q8_0', [1, 32], data[:34]), ('c', 'GGML_77', [5], data[:40])])
    yield 2, gguf([('q', 'Q4_K', [256], data[:72] * 2), ('i', 'I8', [3], b'abc')], version=2, alignment=8, pad_last=False)
    array = struct.pack('<IIQ', 9, 8, 2) + string(b'a') + string(b'bc')
    nested = struct.pack('<IIQ', 9, 9, 1) + struct.pack('<IQ', 9, 1) + struct.pack('<IQ', 4, 3) + bytes(12)
    values = [('s', struct.pack('<I', 8) + string(b'text')), ('a', array), ('n', nested), ('f', struct.pack('<Id', 12, 1.5)), ('b', struct.pack('<IB', 7, 1))]
    yield 2, gguf([('w', 'BF16', [4, 4], data[:32])], values=values)
    for descr, size in (('<f4', 4), ('|b1', 1), ('<c16', 16), ('>f8', 8), ('<U5', 20)):
        yield 3, npy(descr, (2, 3), data[:6 * size])
    yield 3, npy('<f4', (), data[:4])
    yield 3, npy('<f2', (4, 0, 2), b'', fortran=True, version=(2, 0))
    yield 3, npy("[('x', '<f4'), ('y', '|i1', (2,))]", (3,), data[:18], version=(3, 0), descr_is_text=False)
    yield 3, npy('<i8', (1 << 62, 2), b'').replace(b'False', b'True') + b'x'
    yield 3, b"\x93NUMPY\1\0\x3a\0{'shape': (3L, 2L), 'descr': \"<u2\", 'fortran_order': True}\n" + data[:12]


def decisions(n, seed):
    """Noise, for harnesses that make files from decisions: a file cannot be their seed."""
    r = random.Random(seed)
    for i in range(n):
        yield r.randbytes(8 << i % 6)


def containers():
    for i, data in enumerate(decisions(120, 1)):
        yield data + ((i * 0x1357 & 0xFFFFF) | (1 + i % 3) << 20).to_bytes(4, 'little')
    for kind, data in container_files():
        for expected in (kind, 0):
            for way in range(4):
                bits = expected | 100 << 2 | way << 12 | 20 << 14
                yield data + bits.to_bytes(4, 'little')


def sealed(text):
    return text + b'"crc32c": "%08x"}\n' % crc32c(text)


def entry(name, state='kept', time=1700000000, fingerprint='0123456789abcdef' * 4, **more):
    fields = {'name': name, 'state': state, 'fingerprint': fingerprint, 'size': 1000, 'time': time, **more}
    return '{%s}' % ', '.join('"%s": %s' % (k, v if isinstance(v, int) else '"%s"' % v) for k, v in fields.items() if v is not None)


def series():
    for entries in ([], [entry('step-1')], [entry('step-1', source='step-1.safetensors'), entry('step-2', 'forgotten'), entry('\u00e4', 'gone')],
                    [entry('a', 'adding', fingerprint=None, size=None)], [entry('a'), entry('a')], [entry('.a')], [entry('x' * 201)], [entry('a', time=-1 << 63)]):
        text = '{"lmc_series": 1, "every": 16, "snapshots": [\n%s\n],\n' % ',\n'.join(entries)
        yield sealed(text.encode())
    yield sealed(b'{"lmc_series": 2, "every": 16, "snapshots": [],\n')
    yield sealed(b'{"lmc_series": 1, "every": 9223372036854775807, "snapshots": [],\n')


POLICIES = ['*=bits:8', '*exp_avg_sq*,role=v=update:0.01\n*exp_avg,role=m=auto:1e-2\n', '# text\n\ndefault level=max\ndefault block=256K\n*=lossless # end\n',
            'm=exp_avg v=exp_avg_sq\nrole=v match=*var*\n', '*[a-z],dtype=F32,min=64K,max=2G,role=any=nmse:.0001', 'a,b=c=rel:0.5\r\n\t*=bits:4',
            '*,base=1=bits:8', 'default block=8K', '=bits:8', '*=', 'role=any match=*', '*,mine=4=bits:5', '*=kmeans:4', '*,min=99999999999999999999=bits:8']


def journals():
    patch = struct.pack('<IIQIIQ', 0, 2, 8, 24, 0, 0b101) + bytes(range(16))
    tail = struct.pack('<IIQIIQ', 0, 1, 0, 4, 0, 1) + bytes(range(8))
    for patches, number, done in ((b'', 2, 0), (patch, 2, 100), (patch + tail, 4, 1000), (tail * 9, 2, 5)):
        header = bytearray(struct.pack('<8sIIQQQQII32s32s', b'\x8cLMCapl\n', 1, 5, 1000, 0, 4096, 12345, 0, 0, bytes(32), bytes(range(32))) + b'delta')
        header += bytes(508 - len(header))
        header += struct.pack('<I', crc32c(header))
        for k in (0, 1):
            slot = bytearray(struct.pack('<QQQI', number + k, done, len(patches), crc32c(patches)))
            slot += struct.pack('<I', crc32c(slot)) + patches
            # both slots have one size here; bytes behind the shorter one's end do no harm
            yield bytes(header) + (slot + bytes(slot) if k == 0 else bytes(len(slot)) + slot)


def manifest():
    for i, data in enumerate(decisions(60, 2)):
        yield data + bytes([5 + i % 2])
    # parameters follow: the last byte is the kind
    for data in journals():
        for repair in (0, 7):
            bits = repair | 3 << 3 | sum((0 | 15 << 3 | 8 << 7) << 5 + 12 * i for i in range(4))
            yield data + (bits & (1 << 64) - 1).to_bytes(8, 'little') + b'\0'
    for text in series():
        yield text + b'\0\1'
        yield text[:-12] + b'00000000"}\n' + b'\1\1'
    for text in POLICIES:
        yield text.encode() + b'\0\2'
        yield b'optimizer.state.7.exp_avg_sq\n' + text.encode() + b'\1\2'
    for text in ('step-9\nstep-10\nstep-010', 'llama-3-8b-step1000\niter_0000100\nbf16', 'a/b.lmc\n.hidden\n.lmc-aZ09bC', 'x.safetensors\ny.gguf\nz.npy', '\n\n'):
        yield text.encode() + b'\3'
    for text, number in ((b'name', 5), (b'\xff\x00\xfe', 1 << 63), ('\u00e4\U0001F600'.encode(), (1 << 63) - 1), (b'"\\\n\x7f', 0)):
        yield text + number.to_bytes(8, 'little') + b'\4'


def torch():
    for i, data in enumerate(decisions(240, 3)):
        yield data + bytes([4 + i % 4])
    item = torch_file({'w': F}, {'0': bytes(range(24))}, prefix='archive/')
    for protocol in 2, 4:
        items = [('w', [4, 3], [2 * i, 0], i * len(item), len(item)) for i in range(2)]
        about = metadata(items)
        yield about + item * 2 + struct.pack('>H', len(about))[::-1] + b'\3'
        yield item * protocol + b'\2'
    for name in SAMPLES.namelist():
        data = SAMPLES.read(name)
        if name.endswith('.pt'):
            yield data + b'\0'
            if zipfile.is_zipfile(SAMPLES.open(name)):
                with zipfile.ZipFile(SAMPLES.open(name)) as z:
                    for member in z.namelist():
                        if member.endswith('/data.pkl'):
                            yield z.read(member) + b'\1'
        if name.endswith('.distcp'):
            at = data.rfind(b'PK\3\4', 0, len(data) * 95 // 100)
            while at > 0 and data[at + 30:at + 46] != b'archive/data.pkl':
                at = data.rfind(b'PK\3\4', 0, at)
            yield data[max(at, 0):] + b'\2'
    for tensors in ({'w': F, 'v': ('torch.LongStorage', '1', 32, 2, (3, 4), (1, 3))}, {'a': ('torch.HalfStorage', '2', 12, 0, (), ()), 'b': ('torch.HalfStorage', '2', 12, 6, (6,), (1,))}):
        yield pickled({k: (v[0], *v[1:]) for k, v in tensors.items()}) + b'\1'
    yield archive({'x': b'y'}) + b'\0'


makers = {'containers': containers, 'manifest': manifest, 'torch': torch}
