//! The signature by which this library recognises its own files, whatever their names.
//!
//! | file | signature | where |
//! | --- | --- | --- |
//! | segment | the preamble of its layout | its first bytes |
//! | region | a [`Trailer`] | behind the data, in a page that is not mapped: the program may store anything in the data, and that of a further communicator's segment begins with a preamble |
//!
//! A file is locked, then signed by its first write, in one call, then linked to its name. So a signed file without a lock
//! is what a dead process has left, and a file without a signature belongs to another program. Only an empty file under a
//! private name can be neither.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Whether a file that begins with these bytes is a segment, of any version.
pub(crate) type IsSegment = fn(&[u8]) -> bool;

/// The number of a segment's first bytes that are read before it is mapped.
pub(crate) const PREAMBLE: usize = 256;

/// The signature of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// The first bytes of a segment.
    Segment(Vec<u8>),
    Region(Trailer),
}

impl Signature {
    /// The signature of a file, if it has one.
    pub(super) fn of(file: &File, is_segment: IsSegment) -> io::Result<Option<Self>> {
        if let Some(trailer) = Trailer::of(file)? {
            return Ok(Some(Signature::Region(trailer)));
        }
        let preamble = preamble(file)?;
        Ok(is_segment(&preamble).then_some(Signature::Segment(preamble)))
    }
}

/// The first bytes of a file; fewer if it is shorter.
pub(super) fn preamble(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; PREAMBLE];
    let len = read_at(file, &mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

const MAGIC: u64 = u64::from_be_bytes(*b"intrapar");
const VERSION: u32 = 1;

/// The creator of a region's file, and its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Its offset in the file, which ends with it.
    pub(super) at: u64,
    /// The creator, in its own PID namespace.
    pub(crate) pid: u32,
    pub(super) job: String,
}

impl Trailer {
    /// Its length: less than a page, and enough for the longest name of a job.
    pub(super) const LEN: usize = 512;

    /// The length of the fields before the name.
    const FIXED: usize = 28;

    /// # Panics
    /// When the name is longer than a job's may be.
    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let fields: [&[u8]; 6] = [
            &MAGIC.to_ne_bytes(),
            &VERSION.to_ne_bytes(),
            &self.pid.to_ne_bytes(),
            &self.at.to_ne_bytes(),
            &(self.job.len() as u32).to_ne_bytes(),
            self.job.as_bytes(),
        ];
        let mut end = 0;
        for field in fields {
            bytes[end..end + field.len()].copy_from_slice(field);
            end += field.len();
        }
        bytes
    }

    /// The trailer of a file, if it has one of this version with the right offset.
    fn of(file: &File) -> io::Result<Option<Self>> {
        let Some(at) = file.metadata()?.len().checked_sub(Self::LEN as u64) else { return Ok(None) };
        let mut bytes = [0; Self::LEN];
        let read = read_at(file, &mut bytes, at)?;
        // A short read: another process is changing the length.
        Ok(Self::decode(&bytes).filter(|trailer| read == Self::LEN && trailer.at == at))
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if long(0)? != MAGIC || word(8)? != VERSION {
            return None;
        }
        let (pid, at) = (word(12)?, long(16)?);
        let end = Self::FIXED.checked_add(usize::try_from(word(24)?).ok()?)?;
        let job = str::from_utf8(bytes.get(Self::FIXED..end)?).ok()?.to_owned();
        Some(Trailer { at, pid, job })
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], at + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::names::MAX_NAME;
    use super::*;

    fn file(bytes: &[u8], at: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, at).unwrap();
        file
    }

    fn is_segment(preamble: &[u8]) -> bool {
        preamble.starts_with(b"ours")
    }

    fn trailer(at: u64) -> Trailer {
        Trailer { at, pid: 42, job: format!("/{}", "x".repeat(MAX_NAME)) }
    }

    #[test]
    fn a_file_is_signed_at_its_start_or_at_its_end() {
        for at in [0, 4096, 1 << 30] {
            let signed = Signature::of(&file(&trailer(at).encode(), at), is_segment).unwrap();
            assert_eq!(signed, Some(Signature::Region(trailer(at))));
        }
        let signed = Signature::of(&file(b"ours", 0), is_segment).unwrap();
        assert_eq!(signed, Some(Signature::Segment(b"ours".to_vec())));
        for other in [&b""[..], &[0; 100], &[0; 8192], b"text", &[0xFF; 512]] {
            assert_eq!(Signature::of(&file(other, 0), is_segment).unwrap(), None);
        }
    }

    #[test]
    fn what_has_a_trailer_is_a_region_whatever_it_begins_with() {
        let split = file(&trailer(4096).encode(), 4096);
        split.write_all_at(b"ours", 0).unwrap();
        assert_eq!(Signature::of(&split, is_segment).unwrap(), Some(Signature::Region(trailer(4096))));
    }

    #[test]
    fn a_trailer_at_another_offset_is_no_signature() {
        let copied = file(&trailer(4096).encode(), 8192);
        assert_eq!(Signature::of(&copied, is_segment).unwrap(), None);
        let signed = file(&trailer(4096).encode(), 4096);
        signed.set_len(4096 + Trailer::LEN as u64 + 1).unwrap();
        assert_eq!(Signature::of(&signed, is_segment).unwrap(), None);
    }

    proptest! {
        #[test]
            fn decoding_accepts_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), Trailer::LEN), begins_right in any::<bool>(),
        ) {
            let mut bytes: [u8; Trailer::LEN] = bytes.try_into().unwrap();
            if begins_right {
                bytes[..12].copy_from_slice(&trailer(0).encode()[..12]);
            }
            let decoded = Trailer::decode(&bytes);
            prop_assert!(begins_right || decoded.is_none());
            if let Some(trailer) = decoded {
                let len = Trailer::FIXED + trailer.job.len();
                prop_assert_eq!(&trailer.encode()[..len], &bytes[..len]);
            }
        }
    }
}
