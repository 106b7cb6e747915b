//! Reports in a real browser: they ask for nothing, complain of nothing, fit the window, show their colours, and print.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::LazyLock,
};

use penstock_report::{Evidence, html};
use penstock_testkit::{needs, trials::Trials};

#[path = "../../report/tests/runs/mod.rs"]
mod runs;

/// Steps of the heat maps' scale from the middle to the end, and the lines of the charts, as the style sheet has them in
/// daylight.
const SCALE: [u32; 5] = [0x7fcdbb, 0x41b6c4, 0x3a9ac8, 0x225ea8, 0x081d58];
const LINES: [u32; 4] = [0x0072b2, 0xc24e00, 0x00805e, 0xb03a80];
/// The page's background in daylight.
const PAPER: u32 = 0xfbfbfa;
/// What is shaded.
const RAIL: u32 = 0xedeff1;
/// A window on a desk, and the narrowest that the browser makes.
const WIDE: u32 = 1280;
const NARROW: u32 = 500;
/// No look takes longer, on a machine with other things to do.
const TIMEOUT: &str = "300";

type Check = fn();

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("pages in a browser", || needs::browser().err());
    let tests: [(&str, Check); 9] = [
        ("two_thousand_cells_in_a_wide_window", || looks(&MANY, WIDE)),
        ("two_thousand_cells_in_a_narrow_window", || looks(&MANY, NARROW)),
        ("a_small_run_in_a_wide_window", || looks(&SMALL, WIDE)),
        ("a_small_run_in_a_narrow_window", || looks(&SMALL, NARROW)),
        ("wake_ups_in_a_wide_window", || wakes(WIDE)),
        ("wake_ups_in_a_narrow_window", || wakes(NARROW)),
        ("published_ratios_fit_into_both_windows", published),
        ("a_report_prints", prints),
        ("a_page_that_asks_and_complains_is_caught", caught),
    ];
    trials.add(&missing, tests);
    trials.run()
}

static MANY: LazyLock<String> = LazyLock::new(|| page(&runs::measured::many_cells()));
static SMALL: LazyLock<String> = LazyLock::new(|| page(&runs::measured::measured(true)));

fn page(evidence: &Evidence) -> String {
    html(evidence)
}

/// A page as the browser has it.
struct Look {
    directory: tempfile::TempDir,
    page: PathBuf,
}

impl Look {
    fn at(html: &str) -> Look {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let page = directory.path().join("report.html");
        fs::write(&page, html).expect("the page is written");
        Look { directory, page }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens the page and gives what the browser wrote on standard output and error. Only the page's own requests may leave
    /// a trace: no name is ever looked up.
    fn open(&self, width: u32, height: u32, more: &[String]) -> (String, String) {
        let browser = needs::browser().expect("the test runs only with a browser");
        let output = Command::new("timeout")
            .arg(TIMEOUT)
            .arg(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .arg("--force-prefers-reduced-motion")
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg(format!("--log-net-log={}", self.file("net.json").display()))
            .arg(format!("--user-data-dir={}", self.file("profile").display()))
            .arg(format!("--window-size={width},{height}"))
            .args(more)
            .arg(format!("file://{}", self.page.display()))
            .output()
            .expect("timeout runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}: {error}", output.status);
        (out, error)
    }

    /// What the page looks like. It must not be blank, ask, complain, or be wider than the window.
    fn draw(&self, width: u32) -> Picture {
        let drawn = self.file("page.png");
        let (_, error) = self.open(width, 4_000, &[format!("--screenshot={}", drawn.display())]);
        assert_eq!(complaints(&error), [""; 0]);
        assert_eq!(self.requests(), [""; 0]);
        let picture = Picture::read(&drawn);
        assert_eq!(picture.width, width as usize);
        let (paper, all) = (picture.count(PAPER), picture.pixels.len());
        assert!(
            paper > all / 10 && paper < all * 95 / 100,
            "{paper} of {all} pixels are paper: the page is blank"
        );
        for row in picture.pixels.chunks(picture.width) {
            let edge = &row[picture.width - 6..];
            assert!(edge.iter().all(|pixel| *pixel == PAPER), "the page is wider than the window");
        }
        picture
    }

    /// What the page asked for, as the browser's record of the network has it. The browser's own requests, for updates of
    /// itself, come from no page.
    fn requests(&self) -> Vec<String> {
        let record = fs::read_to_string(self.file("net.json")).expect("the browser records the network");
        let asked = record.lines().filter(|line| line.contains("\"initiator\":"));
        let by_a_page = asked.filter(|line| !line.contains("\"initiator\":\"not an origin\""));
        by_a_page.map(str::to_owned).collect()
    }
}

/// What the page complained of.
fn complaints(error: &str) -> Vec<&str> {
    error.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// A picture of a page, a colour a pixel.
struct Picture {
    width: usize,
    pixels: Vec<u32>,
}

impl Picture {
    fn read(path: &Path) -> Picture {
        let file = std::io::BufReader::new(fs::File::open(path).expect("the browser drew a picture"));
        let mut decoder = png::Decoder::new(file);
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a picture that fits into memory")];
        let info = reader.next_frame(&mut bytes).expect("a whole picture");
        let samples = info.color_type.samples();
        assert!(samples >= 3, "a picture without colours");
        let pixel = |p: &[u8]| u32::from_be_bytes([0, p[0], p[1], p[2]]);
        let pixels = bytes[..info.buffer_size()].chunks_exact(samples).map(pixel).collect();
        Picture { width: info.width as usize, pixels }
    }

    fn count(&self, colour: u32) -> usize {
        self.pixels.iter().filter(|pixel| **pixel == colour).count()
    }

    /// How many rows have this colour.
    fn rows(&self, colour: u32) -> usize {
        self.pixels.chunks(self.width).filter(|row| row.contains(&colour)).count()
    }
}

/// The page in a window of this width: its heat maps and its charts, and whether all of it fits.
fn looks(html: &str, width: u32) {
    // The browser draws a page from its top: all that stands before the section is folded away.
    let from = |section: &str| {
        let before = format!("header,main>:not(#measurements),#measurements>:not(#{section}~*)");
        let at = html.find("</style>").expect("the page has its style");
        Look::at(&format!("{}{before}{{display:none}}{}", &html[..at], &html[at..])).draw(width)
    };
    // Most of a heat map is beside a narrow window, which scrolls to it.
    if width == WIDE {
        let at_heat = from("heat");
        for step in SCALE {
            let (pixels, rows) = (at_heat.count(step), at_heat.rows(step));
            assert!(
                pixels > 500 && rows > 15,
                "no cell of the heat maps has #{step:06x}: {pixels} in {rows} rows"
            );
        }
    }
    let at_charts = from("sizes");
    for line in LINES {
        let rows = at_charts.rows(line);
        assert!(rows > 30, "no line of the charts has #{line:06x}: {rows} rows");
    }

    fits(html, width);
}

/// The section of latencies and the audit: lines have their colours, and everything fits and can be read.
fn wakes(width: u32) {
    let html = page(&runs::real_time::real_time(true));
    let from = |section: &str, after: &str| {
        let before = format!("header,main>:not(#{section}),#{section}>:not({after}){{display:none}}");
        let at = html.find("</style>").expect("the page has its style");
        Look::at(&format!("{}{before}{}", &html[..at], &html[at..])).draw(width)
    };
    let charts = from("real-time", "#wake-ups~*");
    for line in LINES {
        let rows = charts.rows(line);
        assert!(rows > 30, "no line of the charts has #{line:06x}: {rows} rows");
    }
    let rail = charts.count(RAIL);
    assert!(
        rail > 1000,
        "neither the column of what is longer nor the time under load is shaded: {rail} pixels"
    );
    for one in [html, page(&runs::real_time::huge()), page(&runs::real_time::tiny())] {
        fits(&one, width);
    }
}

/// What others published, beside what was measured here.
fn published() {
    let html = page(&runs::measured::measured_in_a_vm(false));
    let at = html.find("</style>").expect("the page has its style");
    for width in [WIDE, NARROW] {
        let before = "header,main>:not(#measurements),#measurements>:not(#published,#published~*)";
        Look::at(&format!("{}{before}{{display:none}}{}", &html[..at], &html[at..])).draw(width);
        fits(&html, width);
    }
}

/// Nothing in the page makes it wider than the window, and no text of its charts is smaller than can be read.
fn fits(html: &str, width: u32) {
    // A page scrolls sideways when something in it is wider, painted or not. A copy asks itself; the page has no scripts.
    let policy = html.find("<meta http-equiv").expect("the page has a policy");
    let end = policy + html[policy..].find('>').expect("a whole element") + 1;
    let ask = "<script>onload = () => { const body = document.body.dataset; body.wide = document.documentElement.scrollWidth; \
         const seen = [...document.querySelectorAll('.real-time svg text')].filter(text => text.checkVisibility()); \
         const outside = seen.filter(text => { const own = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect(); \
         return own.left < all.left - 1 || own.right > all.right + 1 || own.top < all.top - 1 || own.bottom > all.bottom + 1; }); \
         body.outside = outside.map(text => text.textContent).join('; '); \
         body.least = Math.min(99, ...seen.map(text => text.getBoundingClientRect().height)); }</script>";
    let copy = Look::at(&format!("{}{}{ask}", &html[..policy], &html[end..]));
    let (dom, _) = copy.open(width, 900, &["--dump-dom".to_owned()]);
    let wide = told(&dom, "wide");
    assert_eq!(
        wide,
        Some(width.to_string().as_str()),
        "the width of all that there is in a window of {width}"
    );
    // In a narrow window letters are not scaled as exactly as the rest.
    if width == WIDE {
        assert_eq!(told(&dom, "outside"), Some(""), "text of a chart that is cut off");
    }
    let least: f64 =
        told(&dom, "least").and_then(|least| least.parse().ok()).expect("the page measured its text");
    assert!(least >= 9.0, "text of {least} pixels");
}

/// What the copy of a page said of itself.
fn told<'a>(dom: &'a str, what: &str) -> Option<&'a str> {
    dom.split(&format!("data-{what}=\"")).nth(1).and_then(|rest| rest.split('"').next())
}

/// The page on paper.
fn prints() {
    let look = Look::at(&page(&runs::measured::measured_small()));
    let paper = look.file("page.pdf");
    let (_, error) = look.open(WIDE, 900, &[format!("--print-to-pdf={}", paper.display())]);
    assert_eq!(complaints(&error), [""; 0]);
    let pdf = fs::read(&paper).expect("the browser printed");
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 50_000, "{} bytes", pdf.len());
    // What is folded on the screen is open on paper: there is more than the few pages of what is open anyway.
    let pages = pdf.windows(11).filter(|bytes| bytes == b"/Type /Page").count();
    assert!(pages >= 6, "{pages} pages");
}

/// The looks above see what they look for.
fn caught() {
    let asks = "<!doctype html><title>x</title><script>console.log('here')</script><img src='http://example.org/x.png'>";
    let look = Look::at(asks);
    let (_, error) = look.open(WIDE, 600, &[format!("--screenshot={}", look.file("page.png").display())]);
    assert!(complaints(&error).iter().any(|line| line.contains("here")), "{error}");
    assert!(look.requests().iter().any(|line| line.contains("example.org/x.png")), "{:?}", look.requests());
}
