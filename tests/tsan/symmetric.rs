//! Symmetric objects. Ranks that are threads share one mapping of them, so the sanitizer sees all of it.

use crate::{Program, run};

pub(crate) const PROGRAMS: &[Program] = &[("symmetric phases", phases), ("symmetric reuse", reuse)];

/// Written by its owner, read by all, and written again.
fn phases() {
    run(&[2, 3, 8], |comm, guarded| {
        for len in [1, 5000] {
            let mut object = guarded.by(comm, || comm.symmetric::<u64>(len))?;
            for turn in 0..5 {
                let mut own = guarded.by(comm, || object.into_own())?;
                own.fill((10 * turn + comm.rank()) as u64);
                let all = guarded.by(comm, || own.open())?.into_read()?;
                for rank in 0..comm.size() {
                    assert!(all.of(rank).iter().all(|value| *value as usize == 10 * turn + rank));
                }
                object = guarded.by(comm, || all.open())?;
            }
            guarded.by(comm, || object.resize(2 * len))?;
        }
        Ok(())
    });
}

/// Read by all, dropped by each when it likes, cleared and written by its next owner.
fn reuse() {
    run(&[2, 3, 8], |comm, _| {
        for turn in 0..20 {
            let mut own = comm.symmetric::<u8>(1000)?.into_own()?;
            assert!(own.iter().all(|value| *value == 0));
            own.fill(turn + 1);
            let all = own.open()?.into_read()?;
            assert!((0..comm.size()).all(|rank| all.of(rank).iter().all(|value| *value == turn + 1)));
        }
        Ok(())
    });
}
