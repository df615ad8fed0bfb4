use crate::model::Time;
use crate::model::line::{Line, Read};
use crate::model::machine::{Cost, Distance, Machine};

/// Reads at time 0 of a line that core 0 owns: the time at which each core has it.
fn read_all(machine: &Machine, readers: impl Iterator<Item = usize>) -> Vec<Time> {
    let mut line = Line::new(machine, 0);
    readers.map(|reader| line.read(machine, reader, 0).done).collect()
}

#[test]
fn a_home_serves_its_readers_one_after_another() {
    let machine = Machine::phi();
    let (latency, service) = (machine.latency(Distance::Far), machine.service(Distance::Far));
    let expected: Vec<Time> = (0..63).map(|earlier| latency + earlier * service).collect();
    assert_eq!(read_all(&machine, 1..64), expected);
}

#[test]
fn homes_of_different_lines_do_not_wait_for_each_other() {
    let machine = Machine::phi();
    let mut lines = [Line::new(&machine, 0), Line::new(&machine, 1)];
    let times = lines.each_mut().map(|line| line.read(&machine, 2, 0).done);
    assert_eq!(times, [machine.latency(Distance::Far); 2]);
}

#[test]
fn the_readers_of_one_l3_take_the_home_s_time_once() {
    let machine = Machine::epyc();
    let (far, near) = (machine.latency(Distance::Far), machine.latency(Distance::Near));
    let times = read_all(&machine, 8..24);
    assert_eq!(times[..3], [far, far + near, far + near + machine.service(Distance::Near)]);
    // The first of the next L3 waits for one service of the home, not for eight.
    assert_eq!(times[8], far + machine.service(Distance::Far));
}

#[test]
fn without_sharing_each_reader_goes_to_the_home() {
    let machine = Machine::epyc().without_shared_fetch("each to the home");
    let times = read_all(&machine, 8..24);
    let service = machine.service(Distance::Far);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == service), "{times:?}");
}

#[test]
fn an_rfo_takes_as_long_as_the_farthest_copy_and_leaves_none() {
    const READERS: [usize; 4] = [1, 8, 16, 96];
    let machine = Machine::epyc();
    let mut line = Line::new(&machine, 0);
    assert_eq!(line.take(&machine, 0, 5, None).done, 5);
    line.read(&machine, 1, 5);
    let (second, third) = (1_000_000, 3_000_000);
    assert_eq!(line.take(&machine, 0, second, None).done, second + machine.latency(Distance::Near));
    for reader in READERS {
        line.read(&machine, reader, 2 * second);
    }
    let all = line.take(&machine, 0, third, Some(7));
    let further = 2 * machine.time(Cost::Probe);
    assert_eq!(all.done, third + machine.latency(Distance::Cross) + further);
    assert_eq!(READERS.map(|reader| line.own_copy(reader)), [None; 4]);
    assert_eq!(line.own_copy(0), Some(7));
}

#[test]
fn a_read_that_follows_an_rfo_waits_for_it_and_sees_its_value() {
    let machine = Machine::epyc();
    let mut line = Line::new(&machine, 0);
    line.read(&machine, 96, 0);
    let rfo = line.take(&machine, 0, 1_000_000, Some(1));
    let read = line.read(&machine, 96, 1_000_000);
    assert_eq!(read, Read { value: 1, done: rfo.done + machine.latency(Distance::Cross) });
}
