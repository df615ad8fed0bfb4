//! What must not compile: mistakes with shared memory, and with what goes on by itself, that the types find.
//!
//! The messages beside the programs are those of the compiler that they were recorded with. After a change of it,
//! `TRYBUILD=overwrite cargo test --test compile_fail` records them again; review what has changed.

#[test]
fn mistakes_with_shared_memory_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
