use super::super::testing::{MIXED, Said, topology};
use super::*;

fn signatures(said: &[Said<'_>], most: usize) -> Vec<String> {
    let topology = topology(said);
    let speed = |node: &Node| Some(node.idle_speed());
    let found = candidates(&topology, speed, most);
    found.into_iter().map(|candidate| candidate.signature.replace("m | ", "")).collect()
}

#[test]
fn equal_reach_goes_to_the_faster_then_the_smaller_id() {
    let head = ("h", 0, 19, 90.0, 0);
    let tail = |id, tps| (id, 20, 39, tps, 0);
    assert_eq!(signatures(&[head, tail("b", 10.0), tail("c", 20.0)], 8), ["h[0-19] -> c[20-39]"]);
    assert_eq!(signatures(&[head, tail("c", 10.0), tail("b", 10.0)], 8), ["h[0-19] -> b[20-39]"]);
}

#[test]
fn a_node_that_is_not_routable_is_in_no_route() {
    let topology = topology(&MIXED);
    let without = |id: &str| {
        let speed = |node: &Node| (node.id.as_str() != id).then_some(1.0);
        candidates(&topology, speed, 8).len()
    };
    assert_eq!((without("gpu-a"), without("cpu-b"), without("-")), (1, 0, 2));
}

#[test]
fn a_longer_route_than_is_followed_is_no_candidate() {
    let names: Vec<String> = (0..40).map(|layer| format!("n{layer:02}")).collect();
    let chain = |hops: u32| -> Vec<Said<'_>> {
        let ends = |hop| if hop + 1 == hops { 39 } else { hop };
        (0..hops).map(|hop| (names[hop as usize].as_str(), hop, ends(hop), 1.0, 0)).collect()
    };
    assert_eq!(signatures(&chain(MOST_HOPS as u32), 8).len(), 1);
    assert_eq!(signatures(&chain(MOST_HOPS as u32 + 1), 8).len(), 0);
}

#[test]
fn the_best_are_kept_whatever_the_order_and_none_if_none_are_asked_for() {
    let whole = |id, tps| (id, 0, 39, tps, 0);
    let nodes = [whole("a", 1.0), whole("b", 3.0), whole("c", 2.0), whole("d", 3.0)];
    assert_eq!(signatures(&nodes, 3), ["b[0-39]", "d[0-39]", "c[0-39]"]);
    let reversed: Vec<Said<'_>> = nodes.iter().rev().copied().collect();
    assert_eq!(signatures(&reversed, 3), signatures(&nodes, 3));
    assert_eq!(signatures(&nodes, 0).len(), 0);
}
