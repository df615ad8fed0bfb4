//! The header of a hostile file: [`Layout::decode`] accepts the same headers as the model, for any bytes and length.

use intranode::segment::layout::{Layout, LayoutError};

use super::input::Input;
use super::model::{Header, MAGIC, Map, VERSION};

/// The length of a header.
pub const LEN: usize = 64;

/// The offsets of its fields: magic number, version, word size, process, ranks, chunk, length of the file.
pub const FIELDS: [usize; 7] = [0, 8, 12, 16, 20, 28, 36];

/// The input: a number for the file's length, and either the bytes or a description of their changes. Returns whether the
/// header was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    if input.byte() & 1 == 0 {
        let length = input.number();
        check(input.rest(), length)
    } else {
        let made = Made::new(&mut input);
        // Truncated at every length: the bytes after the last field are not needed.
        let believed = (0..made.bytes.len()).filter(|len| check(&made.bytes[..*len], made.length)).count();
        assert!(believed == 0 || believed == LEN - FIELDS[6] - 8);
        check(&made.bytes, made.length)
    }
}

/// A valid header with some changes.
pub struct Made {
    /// The header.
    pub bytes: [u8; LEN],
    /// The length of the file.
    pub length: u64,
}

impl Made {
    /// The input: ranks, chunk, process; a mask of fields to change, and a number for each.
    pub fn new(input: &mut Input<'_>) -> Self {
        let (ranks, chunk, pid) = (input.number(), input.number(), input.number() as u32);
        // With a valid layout, if there is one: then a later change is the only error.
        let map = Map::new(ranks.into(), chunk.into());
        let len = map.map_or(0, |map| map.len as u64);
        let mut bytes = [0; LEN];
        put(&mut bytes, FIELDS[0], &MAGIC.to_ne_bytes());
        put(&mut bytes, FIELDS[1], &VERSION.to_ne_bytes());
        put(&mut bytes, FIELDS[2], &usize::BITS.to_ne_bytes());
        put(&mut bytes, FIELDS[3], &pid.to_ne_bytes());
        put(&mut bytes, FIELDS[4], &ranks.to_ne_bytes());
        put(&mut bytes, FIELDS[5], &chunk.to_ne_bytes());
        put(&mut bytes, FIELDS[6], &len.to_ne_bytes());
        let mut made = Made { bytes, length: len };
        made.change(input);
        made
    }

    fn change(&mut self, input: &mut Input<'_>) {
        let changes = input.byte();
        for (bit, field) in FIELDS.into_iter().enumerate() {
            if changes & 1 << bit != 0 {
                let value = input.number().to_ne_bytes();
                let width = FIELDS.get(bit + 1).map_or(8, |next| next - field);
                for (byte, change) in self.bytes[field..field + width].iter_mut().zip(value) {
                    *byte ^= change;
                }
            }
        }
        if changes & 1 << 7 != 0 {
            self.length = self.length.wrapping_add(input.number());
        }
    }
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn check(bytes: &[u8], length: u64) -> bool {
    assert_eq!(Layout::is_segment(bytes), bytes.starts_with(&MAGIC.to_ne_bytes()));
    // The holder appears in a message only, but any bytes may encode it.
    let holder = Layout::holder(bytes);
    let expected = Header::read(bytes, length);
    match Layout::decode(bytes, length) {
        Ok((layout, pid)) => {
            let believed = Header { pid, ranks: layout.ranks() as u64, chunk: layout.chunk() as u64 };
            assert_eq!(Some(believed), expected, "{bytes:?}, {length} bytes");
            assert_eq!(layout.len() as u64, length);
            assert_eq!(Layout::new(layout.ranks(), layout.chunk()), Ok(layout));
            let used = FIELDS[6] + 8;
            assert_eq!(layout.preamble(pid)[..used], bytes[..used]);
            assert_eq!(holder, Some(pid));
            true
        }
        Err(error) => {
            assert_eq!(expected, None, "{bytes:?}, {length} bytes: {error}");
            assert!(!error.to_string().is_empty());
            if let LayoutError::Length { actual, expected } = error {
                assert_ne!(actual, expected);
            }
            false
        }
    }
}
