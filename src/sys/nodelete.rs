//! Keeping this library's code loaded.
//!
//! Handlers of signals and threads stay when a program unloads the shared object (a plug-in, an extension module) that this
//! library was linked into: `dlclose` would take their code away under them. So before there is one, the object is marked as
//! one that is never unloaded.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::Once;

/// Keeps the object loaded from here on, for as long as the process lives. In a program itself this changes nothing.
pub(crate) fn keep_loaded() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(object) = this_object() {
            // RTLD_NOLOAD: it is there; only its flags change. Where that is refused, nothing has changed.
            let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            // SAFETY: I7: the name ends in NUL and outlives the call. No code is loaded, so none is run.
            unsafe { libc::dlopen(object.as_ptr(), flags) };
        }
    });
}

/// The name of the file that this code was loaded from.
fn this_object() -> Option<&'static CStr> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let address = keep_loaded as fn() as *const c_void;
    // SAFETY: I7: it looks an address up, and writes all of the answer, or fails.
    if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: I7: the call has succeeded.
    let found = unsafe { found.assume_init() };
    // SAFETY: I7: null, or a string of the loader's that lives as long as the object, which this code is a part of.
    (!found.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(found.dli_fname) })
}
