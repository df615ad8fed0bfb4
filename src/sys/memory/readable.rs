//! Whether memory can be touched: what lies behind the end of a file cannot, although it is mapped (SIGBUS).

use super::pages::page_size;

/// Whether the last byte of a slice can be read. If that lies in a file somebody may truncate it at any time; what is before the last byte can
/// be read if that can.
pub(crate) fn is_readable(slice: &[u8]) -> bool {
    let Some(last) = slice.last() else { return true };
    let last: *const u8 = last;
    let page = page_size();
    let start = last.map_addr(|last| last / page * page).cast_mut();
    // SAFETY: I7: it has the system read a page, as touching it would, and changes nothing.
    let result = unsafe { libc::madvise(start.cast(), page, libc::MADV_POPULATE_READ) };
    // Before Linux 5.14 it is not known.
    result == 0 || !matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT | libc::ENOMEM))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn own_memory_can_be_read() {
        let bytes = vec![0; 5 << 20];
        assert!(is_readable(&bytes) && is_readable(&bytes[4097..4099]) && is_readable(&[]));
    }
}
