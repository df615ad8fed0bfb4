//! Cross-memory attach (CMA): the kernel copies from another process's memory.

/// What has come of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// All bytes, from the process that has the token.
    All,
    /// The system does not allow it, or the process has not the token.
    Refused,
    /// The process has the token, and nothing is mapped at the address.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux reads another process's memory")
    )]
    Unmapped,
}

/// A number that only one process can have shown, and its address in that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

/// Fills `target` from address `from` of `process`, which has to be the one with the token. Each call reads the token too: a call
/// uses one address space, so a process that has called exec in between, or another one with the same number, is found out.
#[cfg(target_os = "linux")]
pub(crate) fn read(process: u32, token: Token, from: u64, target: &mut [u8]) -> Fetched {
    read_counted(process, token, from, target, &mut 0)
}

/// The same, and adds the bytes at the front that were read in any case.
#[cfg(target_os = "linux")]
fn read_counted(process: u32, token: Token, from: u64, target: &mut [u8], read: &mut usize) -> Fetched {
    const TOKEN: usize = size_of::<u64>();
    let (Ok(process), Ok(token_at)) = (libc::pid_t::try_from(process), usize::try_from(token.address)) else {
        return Fetched::Refused;
    };
    let mut done = 0;
    while done < target.len() {
        let rest = &mut target[done..];
        let Some(from) = usize::try_from(from).ok().and_then(|from| from.checked_add(done)) else {
            return Fetched::Unmapped;
        };
        let mut seen = [0u8; TOKEN];
        let part = |address: usize, len| libc::iovec {
            iov_base: core::ptr::without_provenance_mut(address),
            iov_len: len,
        };
        let remote = [part(token_at, TOKEN), part(from, rest.len())];
        let local = [
            libc::iovec { iov_base: seen.as_mut_ptr().cast(), iov_len: TOKEN },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        // SAFETY: I7 and I14: each list has two entries, and the local ones are exclusive slices.
        let copied = unsafe { libc::process_vm_readv(process, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        match usize::try_from(copied) {
            Ok(TOKEN..) if u64::from_ne_bytes(seen) != token.value => return Fetched::Refused,
            Ok(TOKEN) => return Fetched::Unmapped,
            Ok(copied @ TOKEN..) => {
                done += copied - TOKEN;
                *read += copied - TOKEN;
            }
            _ => return Fetched::Refused,
        }
    }
    Fetched::All
}

/// The most parts of one call, with the token.
#[cfg(target_os = "linux")]
const PARTS: usize = 1023;

/// The same for several parts: each slice is filled from its address. Adds the bytes at the front that were read in any case.
#[cfg(target_os = "linux")]
pub(crate) fn read_parts(
    process: u32,
    token: Token,
    parts: &mut [(u64, &mut [u8])],
    done: &mut usize,
) -> Fetched {
    const TOKEN: usize = size_of::<u64>();
    if let [(address, target)] = parts {
        return read_counted(process, token, *address, target, done);
    }
    for batch in parts.chunks_mut(PARTS) {
        let mut seen = [0u8; TOKEN];
        let remote = |address: u64, len| libc::iovec {
            iov_base: core::ptr::without_provenance_mut(address as usize),
            iov_len: len,
        };
        let mut from = vec![remote(token.address, TOKEN)];
        from.extend(batch.iter().map(|(address, target)| remote(*address, target.len())));
        let mut to = vec![libc::iovec { iov_base: seen.as_mut_ptr().cast(), iov_len: TOKEN }];
        let local =
            |target: &mut [u8]| libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
        to.extend(batch.iter_mut().map(|(_, target)| local(target)));
        let all: usize = batch.iter().map(|(_, target)| target.len()).sum();
        let Ok(number) = libc::pid_t::try_from(process) else { return Fetched::Refused };
        let count = from.len() as libc::c_ulong;
        // SAFETY: I7 and I14: both lists have this many entries, and the local ones are exclusive slices.
        let copied = unsafe { libc::process_vm_readv(number, to.as_ptr(), count, from.as_ptr(), count, 0) };
        match usize::try_from(copied) {
            Ok(TOKEN..) if u64::from_ne_bytes(seen) != token.value => return Fetched::Refused,
            Ok(copied) if copied == TOKEN + all => *done += all,
            // The system may stop anywhere: part by part it is found out whether it can go on.
            Ok(TOKEN..) => {
                for (address, target) in batch {
                    match read_counted(process, token, *address, target, done) {
                        Fetched::All => {}
                        other => return other,
                    }
                }
            }
            _ => return Fetched::Refused,
        }
    }
    Fetched::All
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn read(_: u32, _: Token, _: u64, _: &mut [u8]) -> Fetched {
    Fetched::Refused
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_in_one_go_however_many() {
        let own: Vec<u8> = (0..30_000u32).map(|index| (index % 251) as u8).collect();
        let cookie = Box::new(7_u64);
        let address = |start: *const u8| start.expose_provenance() as u64;
        let token = Token { address: address((&raw const *cookie).cast()), value: 7 };
        let (process, from) = (std::process::id(), address(own.as_ptr()));
        let mut target = vec![0; own.len()];
        let parts = |target| <[u8]>::chunks_mut(target, 10).enumerate();
        let mut list: Vec<_> =
            parts(&mut target[..]).map(|(index, part)| (from + 10 * index as u64, part)).collect();
        let mut done = 0;
        let found = read_parts(process, token, &mut list, &mut done);
        assert_eq!((found, done), (Fetched::All, 30_000));
        list[2999].0 = 8;
        done = 0;
        let found = read_parts(process, token, &mut list, &mut done);
        assert_eq!((found, done), (Fetched::Unmapped, 29_990));
        let forged = Token { value: 8, ..token };
        done = 0;
        let found = read_parts(process, forged, &mut list, &mut done);
        assert_eq!((found, done), (Fetched::Refused, 0));
        assert!(target == own);
    }

    #[test]
    fn a_read_needs_the_token_and_mapped_memory() {
        let own: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        let cookie = Box::new(0xABCD_u64);
        let address = |start: *const u8| start.expose_provenance() as u64;
        let token = Token { address: address((&raw const *cookie).cast()), value: *cookie };
        let (process, from) = (std::process::id(), address(own.as_ptr()));
        let mut target = vec![0; own.len()];
        assert_eq!(read(process, token, from, &mut target), Fetched::All);
        assert!(target == own);
        let forged = Token { value: token.value + 1, ..token };
        assert_eq!(read(process, forged, from, &mut target), Fetched::Refused);
        assert_eq!(read(process, Token { address: 8, ..token }, from, &mut target), Fetched::Refused);
        assert_eq!(read(0, token, from, &mut target), Fetched::Refused);
        assert_eq!(read(process, token, 8, &mut target), Fetched::Unmapped);
        assert_eq!(read(process, token, u64::MAX, &mut target), Fetched::Unmapped);
        assert_eq!(read(process, token, 8, &mut []), Fetched::All);
    }
}
