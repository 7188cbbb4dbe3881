//! Terminal output as a picture.

use std::fmt::Write as _;

/// Width of a character in pixels.
const WIDTH: f64 = 7.8;
const HEIGHT: f64 = 17.0;
const MARGIN: f64 = 14.0;

/// Renders `text` as SVG. Every line keeps its terminal width, independent of the fonts of the viewer.
pub(crate) fn svg(text: &str) -> String {
    let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = 2.0f64.mul_add(MARGIN, length(columns));
    let height = 2.0f64.mul_add(MARGIN, text.lines().fold(0.0, |height, _| height + HEIGHT));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#14171c\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\" fill=\"#dbe1e8\">\n"
    );
    let mut place = MARGIN;
    for line in text.lines() {
        place += HEIGHT;
        if !line.trim().is_empty() {
            let (line, length) = (line.trim_end(), length(line.trim_end().chars().count()));
            let line = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            // Writing to a `String` does not fail.
            let _ = writeln!(
                svg,
                "<text x=\"{MARGIN}\" y=\"{:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                 xml:space=\"preserve\">{line}</text>",
                place - 4.0
            );
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn length(characters: usize) -> f64 {
    (0..characters).fold(0.0, |length, _| length + WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_width_of_their_characters() {
        let svg = svg("a → b\n\n  <&>\n");
        assert!(svg.contains("textLength=\"39.0\"") && svg.contains(">a → b</text>"), "{svg}");
        assert!(svg.contains(">  &lt;&amp;&gt;</text>"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 2);
    }
}
