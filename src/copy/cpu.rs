//! Who made the processor, where that decides how it copies best.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Whether a checker watches every access to memory: Miri, or the thread sanitizer (`.ci/tsan`). Neither sees what is done
/// by vectors of 32 bytes or non-temporal stores, so all copies are then left to the compiler.
#[cfg(target_arch = "x86_64")]
pub(super) const WATCHED: bool = cfg!(any(miri, tsan));

/// The first family of AMD's processors (Zen 5) whose string instructions write whole lines without having read them. On a Zen 4 they
/// were measured at up to five times the time of a loop of wide vectors.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AMD_STRINGS_FROM_FAMILY: u32 = 0x1A;

/// What is known of the processor: bits, and none before it has been asked.
#[cfg(all(target_arch = "x86_64", not(miri)))]
static KNOWN: AtomicU8 = AtomicU8::new(0);

const ASKED: u8 = 1;
const INTEL: u8 = 2;
const STRINGS: u8 = 4;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn known() -> u8 {
    match KNOWN.load(Relaxed) {
        0 => ask(),
        known => known,
    }
}

/// Every thread that asks gets the same answer.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
fn ask() -> u8 {
    use core::arch::x86_64::__cpuid;

    #[allow(unused_unsafe, reason = "newer toolchains know that it is safe")]
    // SAFETY: I7: every x86-64 processor has the instruction.
    let name = unsafe { __cpuid(0) };
    #[allow(unused_unsafe, reason = "newer toolchains know that it is safe")]
    // SAFETY: I7: every x86-64 processor has this leaf.
    let version = unsafe { __cpuid(1) }.eax;
    let name = [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes);
    let known = match name.as_flattened() {
        b"GenuineIntel" => ASKED | INTEL | STRINGS,
        b"AuthenticAMD" if family(version) >= AMD_STRINGS_FROM_FAMILY => ASKED | STRINGS,
        _ => ASKED,
    };
    KNOWN.store(known, Relaxed);
    known
}

/// The family that the first word of leaf 1 says.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn family(version: u32) -> u32 {
    match version >> 8 & 0xF {
        0xF => 0xF + (version >> 20 & 0xFF),
        family => family,
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn known() -> u8 {
    ASKED
}

#[cfg(test)]
thread_local! {
    /// What a test wants this thread to take the processor for.
    pub(crate) static TAKEN_FOR_INTEL: std::cell::Cell<Option<bool>> = const { std::cell::Cell::new(None) };

    /// Whether a test wants this thread to take the processor for one without fast string instructions.
    pub(crate) static TAKEN_FOR_SLOW: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether it is one of Intel's.
#[inline]
pub(crate) fn is_intel() -> bool {
    #[cfg(test)]
    if let Some(taken) = TAKEN_FOR_INTEL.get() {
        return taken;
    }
    known() & INTEL != 0
}

/// Whether string instructions write whole lines without having read them, and so copy to lines that other cores have read as fast as
/// anything else.
#[inline]
pub(crate) fn has_strings() -> bool {
    #[cfg(test)]
    if TAKEN_FOR_INTEL.get() == Some(true) || TAKEN_FOR_SLOW.get() {
        return !TAKEN_FOR_SLOW.get();
    }
    known() & STRINGS != 0
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn families_of_processors_are_told_apart() {
        // Zen 4 and Zen 5; an Intel Xeon of 2023.
        assert_eq!([0x00A1_0F11, 0x00B0_0F21, 0x000C_06F2].map(family), [0x19, 0x1A, 6]);
        assert!(has_strings() || !is_intel());
    }
}
