#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    intranode_fuzz::layout::run(data);
});
