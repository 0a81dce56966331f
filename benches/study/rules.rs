//! What is compared.

/// A rule, and the settings of which the best are taken.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) settings: &'static [&'static str],
}

/// The default comes last.
pub(crate) const RULES: [Rule; 8] = [
    Rule { name: "random", settings: &["random"] },
    Rule { name: "round robin", settings: &["round_robin"] },
    Rule { name: "least load", settings: &["least_load", "least_load:choices=2"] },
    Rule { name: "affinity", settings: &["affinity"] },
    Rule { name: "gate", settings: &["gate:limit=4", "gate:limit=8", "gate:limit=16"] },
    Rule { name: "readmit", settings: &["readmit:limit=4", "readmit:limit=8", "readmit:limit=16"] },
    Rule {
        name: "pin",
        settings: &[
            "pin:limit=4,floor=1",
            "pin:limit=8,floor=1",
            "pin:limit=8,floor=8",
            "pin:limit=16,floor=1",
        ],
    },
    Rule { name: "cost", settings: &["cost"] },
];

/// The default's place.
pub(crate) const COST: usize = RULES.len() - 1;
