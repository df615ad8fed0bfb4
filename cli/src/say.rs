//! What the program says on its standard streams. A reader that has gone is no failure: what is still to be done is done, and the
//! exit status says what came of it. (`println!` and `eprintln!` panic then.)

use std::fmt::Display;
use std::io::{self, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// A line on standard output.
pub(crate) fn line(text: impl Display) {
    lines(format_args!("{text}\n"));
}

/// Whole lines on standard output.
pub(crate) fn lines(text: impl Display) {
    if let Err(error) = write!(stdout(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        *LOST.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// Why something that was said is lost, as on a full disk.
pub(crate) fn lost() -> Option<io::Error> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A question on standard output, with the answer in the same line. False: nobody can read it.
pub(crate) fn question(text: impl Display) -> bool {
    let mut output = stdout();
    write!(output, "{text}").and_then(|()| output.flush()).is_ok()
}

/// A message on standard error.
pub(crate) fn error(text: impl Display) {
    let _ = write_all(&mut stderr(), format!("intranode: {text}\n").as_bytes());
}

/// A name without what a terminal would obey: any process may have set it, also one of another user.
pub(crate) fn printable(name: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    name.chars().map(shown).collect()
}

/// Writes all, also to a stream that does not block: every process that shares it, as a rank does, can have set that.
pub(crate) fn write_all(output: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => until_writable(output)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn until_writable(output: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
