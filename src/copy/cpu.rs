//! Who made the processor, where that decides how it copies best.

/// Whether a checker watches every access to memory: Miri, or the thread sanitizer (`.ci/tsan`). Neither sees what is done
/// by vectors of 32 bytes or non-temporal stores, so all copies are then left to the compiler.
pub(super) const WATCHED: bool = cfg!(any(miri, tsan));

/// Whether the C library copies to lines that other cores will read as fast as anything else. So it is on Intel's
/// processors, whose string instructions write whole lines without having read them; on AMD's a plain loop of wide vectors was
/// measured at two thirds of the time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn is_intel() -> bool {
    use std::sync::OnceLock;

    static IS_INTEL: OnceLock<bool> = OnceLock::new();
    *IS_INTEL.get_or_init(|| {
        #[allow(unused_unsafe, reason = "newer toolchains know that it is safe")]
        // SAFETY: I7: every x86-64 processor has the instruction.
        let name = unsafe { core::arch::x86_64::__cpuid(0) };
        [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
    })
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub(crate) fn is_intel() -> bool {
    false
}
