use super::super::testing::{MIXED, fleet, layers, nodes, request, topology};
use super::*;

#[test]
fn nodes_that_are_none_are_refused_by_name() {
    let model = layers(0, 39);
    let with = |change: fn(&mut Node)| {
        let mut nodes = nodes(&MIXED);
        change(&mut nodes[0]);
        Topology::new("m", model, nodes).unwrap_err().to_string()
    };
    for (complaint, part) in [
        (with(|node| node.id = "cpu-b".into()), "`cpu-b` is there twice"),
        (with(|node| node.id = "a[0-1]".into()), "`a[0-1]` must not"),
        (with(|node| node.layers = layers(3, 40)), "layers 3-40; the model has 0-39"),
        (with(|node| node.tps = 0.0), "tps of node `gpu-a`"),
        (with(|node| node.tps = f64::NAN), "tps of node `gpu-a`"),
        (with(|node| node.tps = f64::INFINITY), "tps of node `gpu-a`"),
        (with(|node| node.reputation = -0.1), "reputation of node `gpu-a`"),
        (with(|node| node.reputation = f64::NAN), "reputation of node `gpu-a`"),
    ] {
        assert!(complaint.contains(part), "{complaint}");
    }
}

#[test]
fn benchmarks_and_reputations_make_no_other_topology_but_shards_and_names_do() {
    let one = topology(&MIXED);
    let [gpu, cpu] = MIXED;
    assert!(one.is_same_as(&topology(&[(gpu.0, gpu.1, gpu.2, 1.0, 9), cpu])));
    assert!(one.is_same_as(&topology(&[cpu, gpu])));
    assert!(!one.is_same_as(&topology(&[("gpu-a", 0, 22, 120.0, 0), cpu])));
    assert!(!one.is_same_as(&topology(&[("gpu-c", 0, 21, 120.0, 0), cpu])));
    assert!(!one.is_same_as(&topology(&[cpu])));
}

#[test]
fn a_node_whose_number_means_another_worker_may_not_be_used() {
    let topology = topology(&MIXED);
    let node = &topology.nodes()[0];
    assert!(topology.speed(node, &fleet(&MIXED), &request(Millis(0))).is_some());
    let [gpu, cpu] = MIXED;
    assert_eq!(topology.speed(node, &fleet(&[cpu, gpu]), &request(Millis(0))), None);
    assert_eq!(topology.speed(node, &fleet(&[]), &request(Millis(0))), None);
}

#[test]
fn without_a_fresh_and_whole_report_what_is_in_flight_counts() {
    use crate::fleet::Report;
    use crate::ledger::Streaming;
    let topology = topology(&[MIXED[1]]);
    let mut worker = fleet(&[MIXED[1]]).workers()[0].clone();
    let _ticket = worker.live.ledger.dispatch(1, Streaming::Streamed, Millis(0));
    let report =
        Report { fresh_until: Millis(10), waiting: Some(3), running: Some(2), ..Report::default() };
    let mut speed = |report: Option<Report>, now| {
        worker.report = report;
        let fleet = Fleet::new(1, vec![worker.clone()]);
        topology.speed(&topology.nodes()[0], &fleet, &request(now))
    };
    assert_eq!(speed(Some(report.clone()), Millis(9)), Some(1.0), "6 tps behind 5");
    for (report, now) in [
        (Some(report.clone()), Millis(10)),
        (Some(Report { running: None, ..report.clone() }), Millis(9)),
        (Some(Report { waiting: None, ..report }), Millis(9)),
        (None, Millis(9)),
    ] {
        assert_eq!(speed(report, now), Some(3.0), "6 tps behind 1");
    }
}

#[test]
fn a_model_that_nobody_computes_has_no_route() {
    let layers = Layers::up_to(std::num::NonZeroU32::MIN);
    assert_eq!((layers.first(), layers.last()), (0, 0));
    let empty = crate::learned::Routes::new(Topology::without_nodes("m", layers));
    assert!(!empty.has_route(&fleet(&MIXED), Millis(0)));
}
