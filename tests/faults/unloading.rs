//! Row 31: the library is in a shared object that the program unloads.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::{Signal, raise};

use super::job::Job;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[("row_31_a_plug_in_is_unloaded", a_plug_in_is_unloaded)];

pub(crate) const PROGRAMS: &[Program] = &[("unloads the plug-in", unloads_the_plug_in)];

/// The plug-in, which cargo builds with the examples.
fn plug_in() -> Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let target = tests.parent().and_then(|deps| deps.parent()).context("cargo's folder")?;
    Ok(target.join("examples/libplugin.so"))
}

fn a_plug_in_is_unloaded() -> Result<Completion> {
    if !plug_in()?.exists() {
        return Ok(Completion::ignored_with("the plug-in is not there: build the examples"));
    }
    let mut job = Job::new(2);
    for rank in 0..2 {
        job.start(rank, "unloads the plug-in", |_| ())?;
    }
    for rank in 0..2 {
        job.await_line(rank, "lives")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn unloads_the_plug_in() -> Result<()> {
    let path = CString::new(plug_in()?.as_os_str().as_bytes())?;
    // SAFETY: the path ends in NUL; the plug-in is our own.
    let object = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    ensure!(!object.is_null(), "dlopen: {}", last_error());
    // SAFETY: the object was just loaded, the name ends in NUL.
    let found = unsafe { libc::dlsym(object, c"plugin_is_a_rank".as_ptr()) };
    ensure!(!found.is_null(), "dlsym: {}", last_error());
    // SAFETY: the function has this type.
    let is_a_rank = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(found) };
    // On a new thread, whose end drops the plug-in's thread-locals.
    let worked = std::thread::spawn(move || is_a_rank()).join();
    ensure!(matches!(worked, Ok(true)), "it was no rank");
    // SAFETY: this program does not use the object any more.
    ensure!(unsafe { libc::dlclose(object) } == 0, "dlclose: {}", last_error());
    // Its handlers must still be mapped.
    raise(Signal::SIGUSR2)?;
    rank::send("lives")?;
    while rank::receive()?.is_some() {}
    Ok(())
}

fn last_error() -> String {
    // SAFETY: it returns null or a string that lives until the next call of the loader.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return "no error".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned()
}
