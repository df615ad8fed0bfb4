#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    #[cfg(target_os = "linux")]
    intranode_fuzz::address::run(data);
    #[cfg(not(target_os = "linux"))]
    let _ = data;
});
