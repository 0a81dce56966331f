//! Reads a Prometheus page.

/// A page as text.
pub struct Page(pub String);

impl Page {
    /// Sum of the samples of `name` whose labels contain every one of `labels`
    /// (`key="value"`); 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.samples(name, labels).sum()
    }

    pub fn has(&self, name: &str) -> bool {
        self.samples(name, &[]).next().is_some()
    }

    fn samples<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [&'a str],
    ) -> impl Iterator<Item = f64> + 'a {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (series, value) = rest.rsplit_once(' ')?;
            let own = series.is_empty() || series.starts_with('{');
            (own && labels.iter().all(|label| series.contains(label)))
                .then(|| value.parse().ok())?
        })
    }
}
