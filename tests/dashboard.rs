//! The dashboard in a real browser over a running edge: what it shows, that it stays true, that it can
//! be used without a mouse, and that names from elsewhere stay text.
//!
//! Needs Chromium and chromedriver (Debian: `chromium`, `chromium-driver`), and says so if they are
//! not there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::browser::Browser;
use support::client::{chat, exchange, get, post, request_with};
use support::edge::Edge;
use support::engine::{Engine, Reply, engines};
use support::until;
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";
/// A name that is markup, and would run if it ever became some.
const HOSTILE: &str = "<img src=x onerror=hacked=1>";
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// Two engines with reports and an edge with a gate and a floor in front.
struct Scene {
    engines: Vec<Engine>,
    edge: Edge,
    urls: Vec<String>,
}

fn yaml(urls: &[String], name: &str, limit: u64) -> String {
    let mut yaml = format!(
        "  load_reports: {{interval: 20ms, format: get_load}}\n  models:\n    - name: \"{name}\"\n      \
         aliases: [default]\n      cache_aware: {{worker_queue_limit: {limit}, saturation_queue_floor: 2, \
         min_matched_tokens: 256}}\n      workers:\n"
    );
    for (at, url) in urls.iter().enumerate() {
        let _ = writeln!(yaml, "        - {{id: w{at}, url: \"{url}\"}}");
    }
    yaml
}

impl Scene {
    async fn start(name: &str) -> Self {
        let (engines, urls) = engines(2).await;
        for engine in &engines {
            engine.set_queue(0, 1);
            engine.answer(|_| Reply::completion());
        }
        let edge = Edge::start(&yaml(&urls, name, 4)).await;
        edge.reports_are("fresh").await;
        Self { engines, edge, urls }
    }

    fn queue(&self, waiting: u64) {
        self.engines.iter().for_each(|engine| engine.set_queue(waiting, 8));
    }

    /// The same long prompt each time; the reason it was routed by.
    async fn ask(&self) -> String {
        let prompt = chat("default", &"the quick brown fox jumps over the lazy dog ".repeat(300));
        let answer = post(self.edge.traffic, CHAT, &prompt).await;
        answer.header("x-tidegate-decision").unwrap().to_owned()
    }

    async fn look(&self) -> Browser {
        let browser = Browser::open(1400, 1000).await;
        browser.go(&page(&self.edge)).await;
        browser.shows("#pulse", "live").await;
        browser
    }
}

fn page(edge: &Edge) -> String {
    format!("http://{}/", edge.admin)
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_decisions_and_pictures_are_shown_and_stay_up_to_date() {
    let scene = Scene::start("m").await;
    assert_eq!(scene.ask().await, "home");
    let browser = scene.look().await;
    browser.shows("#worker-table tbody", "w1").await;
    browser.shows("#decision-table tbody", "home").await;
    browser.shows("#config", "Generation in force").await;
    // What changes afterwards comes by itself.
    scene.queue(3);
    browser.shows("#heat", "3 waiting").await;
    browser.shows("#worker-table tbody tr:first-child td:nth-of-type(3)", "3").await;
    assert_eq!(scene.ask().await, "cache_candidate");
    browser.shows("#decision-table tbody tr:first-child", "cache_candidate").await;
    browser.shows("#chart-reasons .key", "cache_candidate").await;
    assert_ne!(
        browser.run("return document.querySelectorAll('#chart-reasons .area').length").await,
        0
    );
    let alternative = "return document.querySelector('#chart-load svg').getAttribute('aria-label')";
    until("the picture in words", async || {
        let words = browser.run(alternative).await;
        words.as_str().unwrap().contains("queue 6").then_some(())
    })
    .await;
    scene.edge.post("/v1/workers/w0/drain").await;
    browser.shows("#heat", "draining").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_stops_no_picture_and_folds_none() {
    let scene = Scene::start("m").await;
    let browser = scene.look().await;
    let places = "return [...document.querySelector('#chart-load .line.c-soft')
        ?.getAttribute('d').matchAll(/[ML]([0-9.-]+),/g) ?? []].map((mark) => Number(mark[1]))";
    let samples = async |least: usize| {
        until("samples", async || {
            let places: Vec<f64> = serde_json::from_value(browser.run(places).await).unwrap();
            (least <= places.len()).then_some(places)
        })
        .await
    };
    samples(1).await;
    // From now on the edge's time of day is yesterday's.
    let set_back = "const real = window.fetch;
        window.fetch = async (...asked) => {
            const answer = await real(...asked);
            if (!String(asked[0]).includes('/v1/overview')) return answer;
            const said = await answer.json();
            said.samples.forEach((sample) => { sample.time -= 86400000; });
            return new Response(JSON.stringify(said), { status: answer.status });
        }";
    browser.run(set_back).await;
    scene.queue(3);
    let words = "return document.querySelector('#chart-load svg').getAttribute('aria-label')";
    until("the picture in words", async || {
        let words = browser.run(words).await;
        words.as_str().unwrap().contains("queue 6").then_some(())
    })
    .await;
    let places = samples(3).await;
    assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saturated_fleet_an_inert_gate_and_an_edge_that_is_gone_are_called_out() {
    let scene = Scene::start("m").await;
    scene.ask().await;
    let browser = scene.look().await;
    assert_eq!(browser.texts("#banners .banner").await, [""; 0]);
    scene.queue(4);
    browser.shows("#banners", "every worker has 2 requests or more waiting").await;
    assert_eq!(scene.ask().await, "saturation_pin");
    browser.shows("#decision-table tbody tr:first-child", "saturation_pin").await;
    let colours = "return [...document.querySelectorAll('#decision-table tbody .swatch')].map(
        (swatch) => getComputedStyle(swatch).backgroundColor)";
    let colours = browser.run(colours).await;
    assert_ne!(colours[0], colours[1], "pins have a colour of their own");
    browser.shows("#chart-reasons .key", "saturation_pin").await;

    scene.engines.iter().for_each(|engine| engine.set_load(None));
    browser.shows("#banners", "The gate is inert for m").await;
    browser.hides("#banners", "every worker has").await;

    assert_eq!(browser.complaints().await, [""; 0]);
    drop(scene);
    browser.shows("#banners", "The edge does not answer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_reload_is_shown_with_path_value_and_message_until_it_is_mended() {
    let scene = Scene::start("m").await;
    let browser = scene.look().await;
    let bad =
        yaml(&scene.urls, "m", 4).replace("saturation_queue_floor: 2", "saturation_queue_floor: 9");
    assert_eq!(scene.edge.reload(&bad).await.status, 422);
    browser.shows("#banners", "The last reload was rejected, 1 problem; generation 1").await;
    let row = "#config table.bad tbody tr";
    browser.shows(row, "tidegate.models[0].cache_aware.saturation_queue_floor").await;
    browser.shows(&format!("{row} td:nth-of-type(1)"), "9").await;
    browser.shows(row, "must not be above `worker_queue_limit` (4)").await;
    // Legal, but hardly meant: told beside it once it is in force.
    let unwise = yaml(&scene.urls, "m", 4).replace("interval: 20ms", "interval: 3s, max_age: 1s");
    assert_eq!(scene.edge.reload(&unwise).await.status, 200);
    browser.hides("#banners", "rejected").await;
    browser.shows("#config table.warn", "tidegate.load_reports.max_age").await;
    browser.shows("#config", "2").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_errors_that_are_markup_stay_text() {
    let scene = Scene::start(HOSTILE).await;
    let head = format!("x-request-id: {HOSTILE}\r\n");
    let body = chat(HOSTILE, "hello");
    exchange(scene.edge.traffic, &request_with("POST", CHAT, &head, body.as_bytes())).await;
    let bad = yaml(&scene.urls, HOSTILE, 4)
        .replace("interval: 20ms", &format!("interval: \"{HOSTILE}\""));
    assert_eq!(scene.edge.reload(&bad).await.status, 422);
    let browser = scene.look().await;
    browser.shows("#model", HOSTILE).await;
    browser.shows("#config", HOSTILE).await;
    browser.click("#decision-table tbody tr button").await;
    browser.shows("#story-body", HOSTILE).await;
    let grown = "return document.querySelectorAll('main img, dialog img, [onerror]').length";
    assert_eq!(browser.run(grown).await, 0);
    assert_eq!(browser.run("return typeof hacked").await, "undefined");
    // The page is not allowed to make markup of text at all.
    let refused = "try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return false }
        catch { return true }";
    assert_eq!(browser.run(refused).await, true);
    let elsewhere = "return performance.getEntriesByType('resource')
        .filter((entry) => new URL(entry.name).origin !== location.origin).length";
    assert_eq!(browser.run(elsewhere).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_can_be_read_with_the_keyboard_alone_and_every_control_has_a_name() {
    let scene = Scene::start("m").await;
    scene.ask().await;
    scene.ask().await;
    let browser = scene.look().await;
    browser.shows("#decision-table tbody", "cache_candidate").await;
    browser.press(TAB).await;
    assert_eq!(browser.run("return document.activeElement.className").await, "skip");
    let focused = "return [document.activeElement.closest('section')?.id,
        document.activeElement.textContent]";
    // The first row's button; on the way to it is every other control.
    let mut passed = Vec::new();
    loop {
        browser.press(TAB).await;
        let at = browser.run(focused).await;
        if at == json!(["decisions", "Story"]) {
            break;
        }
        passed.push(at.to_string());
        assert!(passed.len() < 80, "{passed:?}");
    }
    assert!(
        passed.iter().any(|at| at.contains("Queue")),
        "columns are sorted by buttons: {passed:?}"
    );
    browser.press(ENTER).await;
    browser.shows("#story-title", "cache_candidate → w").await;
    browser.shows("#story-body .rungs .decided", "tournament").await;
    browser
        .shows("#story-body .rungs", "no owner had a queue known to be at the limit (now 4)")
        .await;
    browser.press(ESCAPE).await;
    assert_eq!(browser.run("return document.getElementById('story').open").await, false);
    assert_eq!(browser.run(focused).await, json!(["decisions", "Story"]), "focus is where it was");

    let tree = browser.devtools("Accessibility.getFullAXTree", json!({})).await;
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    let nodes = tree["nodes"].as_array().unwrap();
    let controls = [
        "button",
        "combobox",
        "textbox",
        "searchbox",
        "checkbox",
        "slider",
        "region",
        "img",
        "image",
        "table",
    ];
    let controls: Vec<&Value> = nodes
        .iter()
        .filter(|node| node["ignored"] == false && controls.contains(&role(node).as_str()))
        .collect();
    assert!(30 < controls.len());
    for node in controls {
        assert_ne!(node["name"]["value"].as_str().unwrap_or_default(), "", "{node}");
    }
    for landmark in ["banner", "navigation", "main", "contentinfo", "status"] {
        assert!(nodes.iter().any(|node| role(node) == landmark), "{landmark}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_workers_can_be_sorted_filtered_and_seen_at_once_on_a_phone_and_in_the_dark()
{
    let mut yaml =
        "  health: {enabled: false}\n  load_reports: {format: none}\n  models:\n".to_owned();
    for model in 0..20 {
        let _ =
            write!(yaml, "    - name: model {model}\n      policy: least_load\n      workers:\n");
        for worker in 0..15 {
            let _ =
                writeln!(yaml, "        - {{id: m{model}-w{worker}, url: \"http://127.0.0.1:1\"}}");
        }
    }
    let edge = Edge::start(&yaml).await;
    let browser = Browser::open(1400, 1000).await;
    browser.go(&page(&edge)).await;
    browser.shows("#workers-caption", "300").await;
    let count = |selector: &str| format!("return document.querySelectorAll('{selector}').length");
    assert_eq!(browser.run(&count("#heat button")).await, 300);
    assert_eq!(browser.run(&count("#worker-table tbody tr")).await, 100);
    browser.click("#worker-more").await;
    assert_eq!(browser.run(&count("#worker-table tbody tr")).await, 300);
    edge.post("/v1/workers/m7-w3/drain").await;
    browser.click("#worker-trouble").await;
    browser.shows("#workers-caption", "1 of 300").await;
    browser.shows("#worker-table tbody", "m7-w3").await;
    browser.click("#worker-trouble").await;
    browser.click("#worker-table .id-column button").await;
    browser.shows("#worker-table tbody tr:first-child", "m19-w14").await;
    let sorted = "return document.querySelector('#worker-table .id-column').ariaSort";
    assert_eq!(browser.run(sorted).await, "descending");
    // One of twenty models.
    browser.click("#models li:nth-of-type(8) button").await;
    browser.shows("#workers-caption", "15").await;
    browser.write("#worker-filter", "w3").await;
    browser.shows("#workers-caption", "1 of 15").await;

    browser.screen(390, 844, "light").await;
    let width = browser.run("return document.documentElement.scrollWidth").await;
    assert_eq!(width, 390, "nothing sticks out");
    let back = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(back).await;
    browser.screen(390, 844, "dark").await;
    assert_ne!(browser.run(back).await, light);
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn learned_routes_are_shown_with_their_settings_and_change_as_they_are_measured() {
    let (engines, urls) = engines(2).await;
    for engine in &engines {
        engine.answer(|_| {
            Reply::json(200, r#"{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":9,"completion_tokens":20}}"#)
        });
    }
    let edge = Edge::start(&format!(
        "  load_reports: {{format: none}}\n  models:\n    - name: m\n      policy: learned\n      layers: 40\n      learned: \
         {{explore_share: 0.25, seed: 1}}\n      workers:\n        - {{id: gpu, url: \"{}\", first_layer: 0, last_layer: 21, \
         tps: 120}}\n        - {{id: cpu, url: \"{}\", first_layer: 0, last_layer: 39, tps: 6}}\n",
        urls[0], urls[1]
    ))
    .await;
    edge.all_healthy().await;
    let browser = Browser::open(1400, 1000).await;
    browser.go(&page(&edge)).await;
    browser.shows("#routes", "explore_share 0.25").await;
    browser.shows("#routes", "gpu → cpu").await;
    browser.shows("#routes", "unsampled").await;
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    browser.shows("#routes", "proven").await;
    browser.click("#decision-table tbody button").await;
    browser.shows("#story-body", "route selected").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_can_be_explained_in_the_page() {
    let scene = Scene::start("m").await;
    let browser = scene.look().await;
    browser.write("#explain-body", &chat("m", "hello")).await;
    browser.click("#explain-form button").await;
    browser.shows("#story-title", "least_load → w").await;
    browser.shows("#story-body", "the prompt is shorter than min_matched_tokens").await;
    browser.press(ESCAPE).await;
    browser.write("#explain-body", "x").await;
    browser.run("document.getElementById('explain-body').value = '{\"model\":\"none\"}'").await;
    browser.click("#explain-form button").await;
    browser.shows("#explain-fault", "the model `none` does not exist").await;
    assert_eq!(scene.edge.ended().await, 0, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_asked_for_and_kept_in_the_tab() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&yaml(&urls, "m", 4)).await;
    let text = std::fs::read_to_string(edge.file()).unwrap();
    let address = format!("admin: {{address: \"{}\"", edge.admin);
    std::fs::write(
        edge.file(),
        text.replace(&address, &format!("{address}, token: secret-of-admin")),
    )
    .unwrap();
    assert_eq!(edge.post("/v1/reload").await.status, 200);
    let browser = Browser::open(1400, 1000).await;
    browser.go(&page(&edge)).await;
    browser.shows("#token-form", "needs its admin token").await;
    browser.write("#token", &format!("wrong{ENTER}")).await;
    browser.shows("#token-fault", "not the token").await;
    browser.write("#token", &format!("secret-of-admin{ENTER}")).await;
    browser.shows("#worker-table tbody", "w0").await;
    browser.go(&page(&edge)).await;
    browser.shows("#worker-table tbody", "w0").await;
    let kept = "return [JSON.stringify(localStorage), document.cookie, location.search]";
    assert_eq!(browser.run(kept).await, json!(["{}", "", ""]));
}

/// The demo as somebody would start it, at ports that are free.
struct Demo {
    process: Child,
    page: String,
    admin: SocketAddr,
}

impl Demo {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("demo")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let page = lines.find_map(|line| Some(line.split_once("dashboard  ")?.1.to_owned()));
        // Nobody reads the rest, and it must not end for that.
        std::thread::spawn(move || lines.for_each(drop));
        let page = page.unwrap();
        let admin = page.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        Self { process, page, admin }
    }

    /// Waits until its fleet was watched for so many seconds, and is saturated with pins to see.
    async fn saturated(&self, seconds: f64) {
        let seen = async || {
            let overview = get(self.admin, "/v1/overview?model=simulated").await.json();
            let samples = overview["samples"].as_array().unwrap().clone();
            let watched: f64 = samples.iter().filter_map(|sample| sample["seconds"].as_f64()).sum();
            let last = samples.last();
            let pins = last
                .is_some_and(|last| 0 < last["reasons"]["saturation_pin"].as_u64().unwrap_or(0));
            (seconds <= watched && pins && overview["models"][0]["saturated"] == true).then_some(())
        };
        let patience = Duration::from_secs_f64(seconds) + 3 * BURSTS;
        let turns = async {
            while seen().await.is_none() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(patience, turns).await.expect("a saturated fleet");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Between two bursts of the demo.
const BURSTS: Duration = Duration::from_secs(30);

/// What the README shows, taken anew: `cargo test --test dashboard -- --ignored screenshots`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than a minute and writes into the source"]
async fn screenshots() {
    let demo = Demo::start();
    until("the demo's edge", async || TcpStream::connect(demo.admin).await.is_ok().then_some(()))
        .await;
    let browser = Browser::open(1400, 1000).await;
    browser.go(&demo.page).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/dashboard/screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    let (wide, phone) = ((1400, 1080), (390, 1300));
    for ((width, height), scheme) in
        [(wide, "light"), (wide, "dark"), (phone, "light"), (phone, "dark")]
    {
        demo.saturated(100.0).await;
        browser.screen(width, height, scheme).await;
        browser.shows("#banners", "Prompts are pinned to their owners").await;
        let picture = browser.picture().await;
        assert!(picture.len() < 150_000, "{} bytes", picture.len());
        std::fs::write(folder.join(format!("{width}-{scheme}.webp")), picture).unwrap();
        let across = browser.run("return document.documentElement.scrollWidth").await;
        assert_eq!(across, width, "nothing sticks out");
    }
    assert_eq!(browser.complaints().await, [""; 0]);
}
