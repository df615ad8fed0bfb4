//! Numbers from a fuzzer's bytes. After the last byte they are zeros.

/// The rest of an input.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The whole input.
    pub fn new(data: &'a [u8]) -> Self {
        Input(data)
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    /// `N` bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        bytes[..taken.len()].copy_from_slice(taken);
        self.0 = rest;
        bytes
    }

    /// A number of any size, with few bytes for interesting ones: the first byte encodes how many bytes follow (two bits),
    /// whether they count from the top of the range (one bit), and the power of two by which they are multiplied.
    pub fn number(&mut self) -> u64 {
        let form = self.byte();
        let value = match form & 3 {
            0 => u64::from(self.byte()),
            1 => u64::from(u16::from_le_bytes(self.bytes())),
            2 => u64::from(u32::from_le_bytes(self.bytes())),
            _ => u64::from_le_bytes(self.bytes()),
        };
        let shifted = value.wrapping_shl(u32::from(form >> 3) * 2);
        if form & 4 == 0 { shifted } else { !shifted }
    }

    /// As [`number`](Self::number), as a `usize`: the lower 32 bits if it has 32.
    pub fn size(&mut self) -> usize {
        self.number() as usize
    }
}
