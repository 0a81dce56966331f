//! A real browser without a window, told what to do over WebDriver.
//!
//! The protocol is JSON over HTTP, which the client next door speaks; chromedriver and Chromium are
//! the machine's own, as Debian packages them.

use super::client::{exchange, request};
use super::{PATIENCE, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const MISSING: &str = "the dashboard is tested in a real browser, and `chromedriver` cannot be \
     started: apt-get install -y chromium chromium-driver";

/// What keeps Chromium to itself: no sandbox as root, no questions, nothing of its own on the network; and a
/// window that is all page.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
    "--hide-scrollbars",
];

/// Ends with the test, its processes with it.
pub struct Browser {
    driver: Driver,
    session: String,
    _profile: TempDir,
}

struct Driver {
    process: Child,
    address: SocketAddr,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Browser {
    /// A driver that is killed leaves its browser running, so the session is ended before. A test that
    /// failed comes here too, and nothing can be awaited.
    fn drop(&mut self) {
        let Ok(mut stream) = TcpStream::connect(self.driver.address) else { return };
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let path = format!("/session/{}", self.session);
        let _ = stream.write_all(&request("DELETE", &path, b"{}"));
        let _ = stream.read(&mut [0; 1]);
    }
}

/// The driver takes a free port of IPv4, then the same of IPv6, which another may have taken meanwhile.
const STARTS: usize = 10;

impl Driver {
    fn start() -> Self {
        (0..STARTS).find_map(|_| Self::try_start()).expect("chromedriver finds a port")
    }

    /// `None`: it ended without one.
    fn try_start() -> Option<Self> {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{MISSING} ({error})"));
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("started successfully on port ")?;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        let Some(port) = port else {
            let _ = process.wait();
            return None;
        };
        Some(Self { process, address: (Ipv4Addr::LOCALHOST, port).into() })
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let answer = exchange(self.address, &request(method, path, body.as_bytes())).await;
        let value = answer.json()["value"].take();
        match answer.status {
            200 => Ok(value),
            _ => Err(format!("{path}: {}", value["message"])),
        }
    }
}

impl Browser {
    /// A window of so many pixels.
    pub async fn open(width: u32, height: u32) -> Self {
        let driver = Driver::start();
        let profile = tempfile::tempdir().unwrap();
        let own = [
            format!("--user-data-dir={}", profile.path().display()),
            format!("--window-size={width},{height}"),
        ];
        let flags: Vec<String> = FLAGS.iter().map(ToString::to_string).chain(own).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = driver.ask("POST", "/session", &wanted).await.expect("a browser");
        let session = session["sessionId"].as_str().unwrap().to_owned();
        Self { driver, session, _profile: profile }
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        self.driver.ask("POST", &path, &body).await.unwrap_or_else(|fault| panic!("{fault}"))
    }

    pub async fn go(&self, url: &str) {
        self.command("url", json!({"url": url})).await;
    }

    /// Runs a function's body in the page; what it returns.
    pub async fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({"script": script, "args": []})).await
    }

    /// What the page shows as text in all elements of a selector.
    pub async fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return [...document.querySelectorAll({})].map((node) => node.innerText.trim())",
            json!(selector)
        );
        let texts = self.run(&script).await;
        texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// All of them as one text.
    pub async fn text(&self, selector: &str) -> String {
        self.texts(selector).await.join("\n")
    }

    /// Waits until the elements of a selector show these words.
    pub async fn shows(&self, selector: &str, words: &str) {
        let what = format!("{words:?} in {selector}");
        until(&what, || async { self.text(selector).await.contains(words).then_some(()) }).await;
    }

    /// Waits until they do not, or are gone.
    pub async fn hides(&self, selector: &str, words: &str) {
        let what = format!("no {words:?} in {selector}");
        until(&what, || async { (!self.text(selector).await.contains(words)).then_some(()) }).await;
    }

    async fn element(&self, selector: &str) -> String {
        let found =
            self.command("element", json!({"using": "css selector", "value": selector})).await;
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    pub async fn click(&self, selector: &str) {
        // The driver may leave it under what sticks to the top.
        let query = json!(selector);
        let script = format!("document.querySelector({query}).scrollIntoView({{block: 'center'}})");
        self.run(&script).await;
        let element = self.element(selector).await;
        self.command(&format!("element/{element}/click"), json!({})).await;
    }

    pub async fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.command(&format!("element/{element}/value"), json!({"text": text})).await;
    }

    /// Presses keys one after another, wherever the focus is.
    pub async fn press(&self, keys: &str) {
        let press = |key: char| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.command("actions", json!({"actions": [keyboard]})).await;
    }

    /// What the browser itself had to say since it was asked last: errors of scripts, refused and
    /// missing files.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", json!({"type": "browser"})).await;
        let lines = log.as_array().unwrap().iter();
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Another window, as wide and as high as a screen of this many pixels, in light or dark.
    pub async fn screen(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", scheme).await;
    }

    /// What is seen now, as a WebP: a third of a PNG, and nobody sees the difference.
    pub async fn picture(&self) -> Vec<u8> {
        let form = json!({"format": "webp", "quality": 90});
        let answer = self.devtools("Page.captureScreenshot", form).await;
        from_base64(answer["data"].as_str().unwrap())
    }

    /// A command of the developer tools.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let digits: Vec<usize> = digits.collect();
    let group = |group: &[usize]| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | group.get(at).copied().unwrap_or(0));
        [bits >> 16, bits >> 8, bits].map(|byte| byte as u8)[..group.len() - 1].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
