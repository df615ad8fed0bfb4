//! Files that stay open, beside what a program does with descriptors that it does not know.

use std::fs::File;
use std::io;
use std::mem;

use crate::sys::inherited::{self, Inherited};
use crate::sys::memory::fork::with_fork_lock;
use crate::sys::shm_file::Identity;

/// A file that stays open. Programs close descriptors that they do not know; what has its number then is theirs, and stays as it is.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: Option<File>,
    identity: Identity,
    inherited: Option<&'static Inherited>,
}

impl KeptFile {
    #[cfg(target_os = "linux")]
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let identity = Identity::of(&file)?;
        Ok(KeptFile { file: Some(file), identity, inherited: None })
    }

    /// Opens a file that forked children do not have: they would keep its memory, and the lock on it, after its owner's death.
    pub(crate) fn not_in_children(open: impl FnOnce() -> io::Result<File>) -> io::Result<Self> {
        with_fork_lock(|| {
            let file = open()?;
            let identity = Identity::of(&file)?;
            let inherited = inherited::note(&file, identity.device, identity.inode);
            Ok(KeptFile { file: Some(file), identity, inherited: Some(inherited) })
        })
    }

    /// The file, if its descriptor still is the one that was opened.
    pub(crate) fn get(&self) -> Option<&File> {
        let file = self.file.as_ref().filter(|_| self.inherited.is_none_or(Inherited::is_open));
        file.filter(|file| Identity::of(file).is_ok_and(|found| found == self.identity))
    }

    /// The same. EBADF: the program has closed the descriptor.
    pub(crate) fn open(&self) -> io::Result<&File> {
        self.get().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if self.get().is_none() {
            mem::forget(self.file.take());
        }
        let file = self.file.take();
        match self.inherited {
            // In one: `fork` copies the descriptors before the memory.
            Some(inherited) => with_fork_lock(|| {
                drop(file);
                inherited.release();
            }),
            None => drop(file),
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::sys::memory::findable;
    use crate::sys::testing::in_forked_child;

    fn is_open(number: i32) -> bool {
        // SAFETY: I7: touches no memory.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    fn notes() -> [KeptFile; 3] {
        [1, 2, 3].map(|number| findable::make_note(&format!("kept_{}_{number}", std::process::id())).unwrap())
    }

    #[test]
    fn a_forked_child_has_none_of_them_and_its_parent_has() {
        let [first, second, third] = notes();
        let number = |file: &KeptFile| file.get().map(AsRawFd::as_raw_fd).unwrap();
        let numbers = [number(&first), number(&third)];
        drop(second);
        assert!(in_forked_child(|| {
            let none_open = !numbers.into_iter().any(is_open);
            none_open && first.get().is_none() && third.get().is_none()
        }));
        // A child of a child, too; and what has the number there is not what was kept.
        assert!(in_forked_child(|| {
            let other = File::open("/dev/null");
            let stays = other.is_ok_and(|other| first.get().is_none() && is_open(other.as_raw_fd()));
            // SAFETY: the child runs this closure only, which makes system calls.
            let grandchild = unsafe { libc::fork() };
            if grandchild == 0 {
                let status = i32::from(first.get().is_some());
                // SAFETY: ends it.
                unsafe { libc::_exit(status) };
            }
            let mut status = -1;
            // SAFETY: its own child, and a live status.
            stays && unsafe { libc::waitpid(grandchild, &raw mut status, 0) } == grandchild && status == 0
        }));
        assert_eq!([&first, &third].map(number), numbers);
    }

    #[test]
    fn what_has_the_number_of_one_that_was_closed_stays_open_in_a_child() {
        let [first, ..] = notes();
        let number = first.get().unwrap().as_raw_fd();
        let other = tempfile::tempfile().unwrap();
        // SAFETY: I7: as a program does that does not know the descriptor; its owner looks before it uses it.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert!(first.get().is_none());
        assert!(in_forked_child(|| is_open(number)));
        drop(first);
        assert!(is_open(number));
        // SAFETY: I7: the number that was made above, which nobody else owns.
        unsafe { libc::close(number) };
    }
}
