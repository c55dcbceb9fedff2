"""Make the font of the formulas: a part of STIX Two Math, mended for browsers.

    python docs/maths_font.py STIXTwoMath-Regular.ttf vademecum/typeset/font/maths.woff

The original (SIL Open Font License 1.1) comes with the package `ziamath`. The form is WOFF, which
`vade sheet` can cut further without another package. Four things are mended:

- Chromium gives every root the width of the widest root sign, hence all get the width of the least;
- it sets accents onto the letter itself, hence an invisible point keeps them at a distance;
- it asks for the shapes of scripts in the scripts of languages, where the font has none;
- of the shapes for scripts and for scripts of scripts, the first serves both.
"""

import sys

from fontTools import subset
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.pens.transformPen import TransformPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

KEPT = (
    "20-7e a0-ff 131 237 2c6-2dd 300-338 391-3f6 2010-203e 2044-2057 20d0-20d7 2100-2138 2190-2199 "
    "21a6-21aa 21d0-21d5 21dd 2200-22ff 2308-230b 239b-23b3 23dc-23e1 25a1 25b3 2713 27e6-27eb "
    "27f5-27ff 2a00-2a06 2aaf-2ab0 1d400-1d503 1d538-1d56b 1d5a0-1d5d3 1d670-1d6a5 1d6a8-1d755 "
    "1d7ce-1d7e1 1d7f6-1d7ff"
)

ACCENTS = "ˆ˜¯˙¨ˇ˘"
DISTANCE = 60  # thousandths of an em


def main(source: str, target: str) -> None:
    options = subset.Options(flavor="woff", hinting=False, layout_features=["ccmp", "ssty"])
    options.drop_tables += ["DSIG"]
    font = subset.load_font(source, options)
    _narrow_roots(font)
    _lift_accents(font)
    _offer_shapes_of_scripts(font)
    cut = subset.Subsetter(options)
    spans = [[int(end, 16) for end in span.split("-")] for span in KEPT.split()]
    cut.populate(unicodes=[code for span in spans for code in range(span[0], span[-1] + 1)])
    cut.subset(font)
    subset.save_font(font, target, options)


def _narrow_roots(font: TTFont) -> None:
    """All root signs as wide as the least."""
    least = (font.getBestCmap() or {})[0x221A]
    variants = font["MATH"].table.MathVariants
    found = variants.VertGlyphConstruction[variants.VertGlyphCoverage.glyphs.index(least)]
    names = {record.VariantGlyph for record in found.MathGlyphVariantRecord}
    names |= {part.glyph for part in found.GlyphAssembly.PartRecords}
    width = font["hmtx"][least][0]
    for name in names - {least}:
        wide, bearing = font["hmtx"][name]
        pen = TTGlyphPen(None)
        font.getGlyphSet()[name].draw(TransformPen(pen, (width / wide, 0, 0, 1, 0, 0)))
        font["glyf"][name] = glyph = pen.glyph()
        glyph.recalcBounds(font["glyf"])
        font["hmtx"][name] = (width, round(bearing * width / wide))


def _lift_accents(font: TTFont) -> None:
    names = font.getBestCmap() or {}
    for name in (names[ord(accent)] for accent in ACCENTS):
        shapes = font.getGlyphSet()
        whole, pen = DecomposingRecordingPen(shapes), TTGlyphPen(None)
        shapes[name].draw(whole)
        whole.replay(pen)
        x, y = round(shapes[name].width / 2), font["glyf"][name].yMin - DISTANCE
        pen.moveTo((x, y))
        pen.lineTo((x + 1, y + 1))
        pen.lineTo((x + 1, y))
        pen.closePath()
        font["glyf"][name] = glyph = pen.glyph()
        glyph.recalcBounds(font["glyf"])


def _offer_shapes_of_scripts(font: TTFont) -> None:
    table = font["GSUB"].table
    features = table.FeatureList.FeatureRecord
    ssty = next(i for i, feature in enumerate(features) if feature.FeatureTag == "ssty")
    for lookup in features[ssty].Feature.LookupListIndex:
        for part in table.LookupList.Lookup[lookup].SubTable:
            shapes = getattr(part, "ExtSubTable", part).alternates
            shapes.update({name: found[:1] for name, found in shapes.items()})
    for script in table.ScriptList.ScriptRecord:
        languages = [record.LangSys for record in script.Script.LangSysRecord]
        for language in [script.Script.DefaultLangSys, *languages]:
            if ssty not in language.FeatureIndex:
                language.FeatureIndex.append(ssty)
                language.FeatureCount = len(language.FeatureIndex)


if __name__ == "__main__":
    main(*sys.argv[1:])
