use crate::model::machine::{CONSTANTS, Distance, Machine};

#[test]
fn every_constant_stands_at_its_own_place() {
    for (place, constant) in CONSTANTS.iter().enumerate() {
        assert_eq!(constant.cost as usize, place);
        assert!(constant.values.iter().all(|value| *value > 0.0) && !constant.source.is_empty());
    }
}

#[test]
fn cores_are_near_by_cache_and_far_by_memory() {
    let epyc = Machine::epyc();
    assert_eq!(epyc.cores(), 192);
    assert_eq!(epyc.distance(0, 7), Distance::Near);
    assert_eq!(epyc.distance(7, 8), Distance::Far);
    assert_eq!(epyc.distance(95, 96), Distance::Cross);
    assert_eq!(epyc.distance(96, 103), Distance::Near);
    // Both are in the second socket; the line is in the memory of the first.
    assert_eq!(epyc.distance(96, 104), Distance::Cross);
    assert_eq!(Machine::xeon().distance(0, 95), Distance::Near);
}

#[test]
fn what_is_farther_takes_no_less() {
    for machine in [Machine::epyc(), Machine::xeon(), Machine::phi()] {
        for distances in [Distance::Near, Distance::Far, Distance::Cross].windows(2) {
            assert!(machine.latency(distances[0]) <= machine.latency(distances[1]));
            assert!(machine.service(distances[0]) <= machine.service(distances[1]));
        }
    }
}
