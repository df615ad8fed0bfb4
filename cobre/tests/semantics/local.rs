//! One rank does what Cobre's own backend does, values and errors alike.

use anyhow::ensure;
use cobre_comm::{CommData, Communicator, LocalBackend, ReduceOp};
use intranode_cobre::ShmBackend;

use crate::{Outcome, Row, rows};

pub(crate) fn rows() -> Vec<Row> {
    rows![&[1]; one_rank_is_the_local_backend].to_vec()
}

fn one_rank_is_the_local_backend(comm: &ShmBackend) -> Outcome {
    let (ours, theirs) = (everything(comm), everything(&LocalBackend));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        ensure!(ours == theirs, "{ours} is not {theirs}");
    }
    ensure!(ours.len() == theirs.len());
    Ok(())
}

/// Every collective with good and bad arguments: what it returns and what is in the buffer.
fn everything<C: Communicator>(comm: &C) -> Vec<String> {
    let mut log = vec![format!("{} of {}, {:?}", comm.rank(), comm.size(), comm.barrier())];
    log.extend(all_of(comm, [1.5, f64::NAN, -0.0]));
    log.extend(all_of(comm, [u8::MAX, 0, 3]));
    log.extend(all_of(comm, [i64::MIN, i64::MAX, 0]));
    log.extend(all_of(comm, [7_usize, 8, 9]));
    log
}

fn all_of<C: Communicator, T: CommData + std::fmt::Debug>(comm: &C, values: [T; 3]) -> Vec<String> {
    let mut log = Vec::new();
    let tables: [(&[usize], &[usize]); 7] = [
        (&[3], &[0]),
        (&[3], &[2]),
        (&[3], &[3]),
        (&[2], &[0]),
        (&[], &[0]),
        (&[3], &[0, 0]),
        (&[3], &[usize::MAX]),
    ];
    for (counts, displs) in tables {
        let mut recv = [T::default(); 5];
        let result = comm.allgatherv(&values, &mut recv, counts, displs);
        log.push(format!("allgatherv {counts:?} {displs:?}: {result:?} {recv:?}"));
    }
    for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
        for (send, room) in [(3, 3), (3, 2), (2, 3), (0, 0), (0, 1), (1, 0)] {
            let mut recv = [T::default(); 3];
            let result = comm.allreduce(&values[..send], &mut recv[..room], op);
            log.push(format!("allreduce {op:?} {send} {room}: {result:?} {recv:?}"));
        }
    }
    for root in [0, 1, usize::MAX] {
        let mut buffer = values;
        let result = comm.broadcast(&mut buffer, root);
        log.push(format!("broadcast {root}: {result:?} {buffer:?}"));
    }
    log
}
