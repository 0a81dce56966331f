//! Settings of cost selection. Fractions are kept as integers: what is compared has no floats.

/// Parts of one.
const MILLIONTHS: u64 = 1_000_000;

/// What a token of line costs per token of prefill, in thousandths; 0 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(u32);

impl Price {
    /// The highest price.
    pub const MOST: f64 = 64.0;

    /// To the next thousandth; `None` unless `0 <= value <= 64`.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=Self::MOST).contains(&value).then(|| Self((value * 1000.0).round() as u32))
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    pub(crate) fn thousandths(self) -> u64 {
        self.0.into()
    }
}

/// Scores this near the least tie, percent; 0 to 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TiePercent(u8);

impl TiePercent {
    /// The widest tie.
    pub const MOST: u8 = 20;

    /// `None` above 20.
    pub fn new(percent: u8) -> Option<Self> {
        (percent <= Self::MOST).then_some(Self(percent))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

/// A measured speed within this factor of the fleet's counts as the fleet's, in thousandths; 1 and
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpeedSnap(u64);

impl SpeedSnap {
    /// The widest snap.
    pub const MOST: f64 = 1e6;

    /// To the next thousandth; `None` unless `1 <= value <= 1e6`.
    pub fn new(value: f64) -> Option<Self> {
        (1.0..=Self::MOST).contains(&value).then(|| Self((value * 1000.0).round() as u64))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Are these two within the factor of each other?
    pub(crate) fn is_near(self, one: u64, other: u64) -> bool {
        let (one, other) = (u128::from(one), u128::from(other));
        let snap = u128::from(self.0);
        one * 1000 <= other * snap && other * 1000 <= one * snap
    }
}

impl Default for SpeedSnap {
    /// 2.
    fn default() -> Self {
        Self(2000)
    }
}

/// Part of a score that is taken off, in millionths; below 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bonus(u32);

impl Bonus {
    /// To the next millionth; `None` unless `0 <= value < 1`.
    pub fn new(value: f64) -> Option<Self> {
        let millionths = (0.0..1.0).contains(&value).then(|| (value * 1e6).round() as u32)?;
        (u64::from(millionths) < MILLIONTHS).then_some(Self(millionths))
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    pub(crate) fn millionths(self) -> u64 {
        self.0.into()
    }
}

/// Settings that cannot stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key to be changed.
    pub key: &'static str,
    /// What would be valid.
    pub must: &'static str,
}

/// The settings of `selection: cost`; names and defaults as in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostRules {
    /// Price of the worker's own line: `rho / (1 - rho)` of the load `rho` it is meant for.
    pub price_worker: Price,
    /// Price of the fleet's mean line: what a copy evicts is missed elsewhere.
    pub price_fleet: Price,
    /// Scores this near the least tie.
    pub tie_percent: TiePercent,
    /// A measured speed this near the fleet's counts as the fleet's.
    pub speed_snap: SpeedSnap,
    /// Off the score of a cold prompt's home.
    pub home_bonus: Bonus,
    /// The same, times the share of the fleet's requests that other edges sent.
    pub home_bonus_foreign: Bonus,
}

impl CostRules {
    /// Settings that are valid one by one and not together.
    pub fn conflict(&self) -> Option<Conflict> {
        if self.price_worker.0 == 0 && 0 < self.price_fleet.0 {
            let must = "must be above 0 if `price_fleet` is";
            return Some(Conflict { key: "price_worker", must });
        }
        let bonuses = self.home_bonus.millionths() + self.home_bonus_foreign.millionths();
        (MILLIONTHS <= bonuses).then_some(Conflict {
            key: "home_bonus_foreign",
            must: "must be below 1 together with `home_bonus`",
        })
    }
}

impl Default for CostRules {
    fn default() -> Self {
        Self {
            price_worker: Price(4000),
            price_fleet: Price(2000),
            tie_percent: TiePercent(2),
            speed_snap: SpeedSnap::default(),
            home_bonus: Bonus(200_000),
            home_bonus_foreign: Bonus(500_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bonuses(own: f64, foreign: f64) -> CostRules {
        let bonus = |value| Bonus::new(value).unwrap();
        CostRules {
            home_bonus: bonus(own),
            home_bonus_foreign: bonus(foreign),
            ..CostRules::default()
        }
    }

    #[test]
    fn bounds_are_where_the_rules_say() {
        assert!(Price::new(0.0).is_some() && Price::new(64.0).is_some());
        assert!(Price::new(-0.1).is_none() && Price::new(64.1).is_none());
        assert!(Price::new(f64::NAN).is_none());
        assert!(TiePercent::new(20).is_some() && TiePercent::new(21).is_none());
        assert!(SpeedSnap::new(1.0).is_some() && SpeedSnap::new(0.99).is_none());
        assert!(SpeedSnap::new(f64::INFINITY).is_none());
        assert!(Bonus::new(0.999).is_some() && Bonus::new(1.0).is_none());
        assert!(Bonus::new(0.999_999_9).is_none() && Bonus::new(-0.1).is_none());
    }

    #[test]
    fn the_defaults_stand_together() {
        assert_eq!(CostRules::default().conflict(), None);
    }

    #[test]
    fn a_fleet_price_needs_a_worker_price() {
        let free = Price::new(0.0).unwrap();
        let rules = CostRules { price_worker: free, ..CostRules::default() };
        assert_eq!(rules.conflict().unwrap().key, "price_worker");
        assert_eq!(CostRules { price_fleet: free, ..rules }.conflict(), None);
    }

    #[test]
    fn bonuses_stay_below_one_together() {
        assert_eq!(bonuses(0.2, 0.8).conflict().unwrap().key, "home_bonus_foreign");
        assert_eq!(bonuses(0.2, 0.799).conflict(), None);
    }

    #[test]
    fn a_snap_is_a_factor_both_ways_and_takes_its_end() {
        let snap = SpeedSnap::new(2.0).unwrap();
        assert!(snap.is_near(4_000, 8_000) && snap.is_near(8_000, 4_000));
        assert!(!snap.is_near(3_999, 8_000) && !snap.is_near(16_001, 8_000));
        assert!(snap.is_near(u64::MAX, u64::MAX));
    }

    #[test]
    fn fractions_are_kept_to_what_they_are_written_with() {
        assert_eq!(Price::new(2.5).unwrap().thousandths(), 2_500);
        assert_eq!(Bonus::new(0.2).unwrap().millionths(), 200_000);
        assert!((SpeedSnap::new(1.5).unwrap().get() - 1.5).abs() < 1e-9);
    }
}
