//! Keeping this library's code loaded.
//!
//! Signal handlers and threads outlive a `dlclose` of the shared object (a plug-in, an extension module) that this library
//! is linked into. So the object is marked RTLD_NODELETE before the first of them exists.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::Once;

/// Keeps the object loaded until the process ends. Has no effect where the code is in the executable.
pub(crate) fn keep_loaded() {
    // Miri loads no shared objects.
    if cfg!(miri) {
        return;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(object) = this_object() {
            // RTLD_NOLOAD: the object is loaded already; only its flags change. A failure changes nothing.
            let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            // SAFETY: I7: the name ends in NUL and outlives the call. No code is loaded, so none is run.
            unsafe { libc::dlopen(object.as_ptr(), flags) };
        }
    });
}

/// The path of the file that this code was loaded from.
fn this_object() -> Option<&'static CStr> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let address = keep_loaded as fn() as *const c_void;
    // SAFETY: I7: the call writes the whole structure, or fails.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: I7: the call has succeeded.
    let info = unsafe { info.assume_init() };
    // SAFETY: I7: null, or the loader's string, which lives as long as the object that contains this code.
    (!info.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(info.dli_fname) })
}
