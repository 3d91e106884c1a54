"""Checks the geometry of a model's picture (groupstore model show --format svg).

    python3 geometry.py FILE.svg...           prints each fault, and the number of boxes and lines
    python3 geometry.py --page FILE.svg...    prints a page that measures the texts in a browser's fonts

Faults: a line that passes through a box, ends elsewhere than at the border of one, or lies on another line; two boxes
that overlap; a line or a box without a title; a relationship without a multiplicity at both ends.
"""

import html
import re
import sys
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"

PAGE = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">%s<pre id="result"></pre><script>
const faults = [];
let count = 0;
for (const picture of document.querySelectorAll("section")) {
    const texts = [...picture.querySelectorAll("svg text")].map(text => {
        const box = text.getBoundingClientRect(), entity = text.closest(".entity");
        // The height of the letters, without the space between lines.
        return {text: picture.title + ": " + text.textContent, left: box.left, right: box.right, top: box.top + 3,
                bottom: box.bottom - 3, frame: entity && entity.querySelector("rect").getBoundingClientRect()};
    });
    count += texts.length;
    texts.forEach((text, index) => {
        if (text.frame && (text.left < text.frame.left + 2 || text.right > text.frame.right - 2))
            faults.push(text.text + " is wider than its box");
        for (const other of texts.slice(index + 1))
            if (text.left < other.right && other.left < text.right && text.top < other.bottom && other.top < text.bottom)
                faults.push(text.text + " overlaps " + other.text);
    });
}
document.getElementById("result").textContent = "texts: " + count + ", faults: " + (faults.join("; ") || "none");
</script>"""


class Picture:
    def __init__(self, path):
        root = ElementTree.parse(path).getroot()
        self.faults = []
        self.boxes, self.lines = {}, []
        if not self.title(root):
            self.faults.append("the picture has no title")
        for group in root.iter(SVG + "g"):
            title = self.title(group)
            if not title:
                self.faults.append("a group has no title")
            if group.get("class") == "entity":
                x, y = map(int, re.findall(r"\d+", group.get("transform")))
                frame = group.find(SVG + "rect")
                self.boxes[title] = (x, y, x + int(frame.get("width")), y + int(frame.get("height")))
            else:
                points = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) (\d+)", group.find(SVG + "path").get("d"))]
                labels = [text.text for text in group.findall(SVG + "text")]
                if group.get("class") == "relationship" and (len(labels) != 2 or not all(labels)):
                    self.faults.append(f"{title}: multiplicities {labels}")
                self.lines.append((title, group.get("class"), points))

    @staticmethod
    def title(element):
        title = element.find(SVG + "title")
        return title is not None and title.text

    def check(self):
        names = list(self.boxes)
        for index, name in enumerate(names):
            for other in names[index + 1:]:
                if self.meet(self.boxes[name], self.boxes[other]):
                    self.faults.append(f"{name} overlaps {other}")
        parts = []
        for title, kind, points in self.lines:
            for place in (points[0], points[-1]):
                if not any(place[0] in (box[0], box[2]) and box[1] <= place[1] <= box[3] for box in self.boxes.values()):
                    self.faults.append(f"{title} ends at {place}, beside all boxes")
            for (x1, y1), (x2, y2) in zip(points, points[1:]):
                if x1 != x2 and y1 != y2:
                    self.faults.append(f"{title} is oblique")
                part = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
                for name, box in self.boxes.items():
                    if self.meet(part, box):
                        self.faults.append(f"{title} passes through {name}")
                if part[:2] != part[2:]:
                    parts.append((title, kind, part))
        for index, (title, kind, part) in enumerate(parts):
            for other, other_kind, second in parts[index + 1:]:
                # Arrows to one parent share their way.
                if title != other and {kind, other_kind} != {"parent"} and self.coincide(part, second):
                    self.faults.append(f"{title} lies on {other}")
        return self.faults

    @staticmethod
    def meet(first, second):
        """True if the two have inner points in common; a line has no width."""
        return (first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3])

    @staticmethod
    def coincide(first, second):
        for axis in (0, 1):
            across = 1 - axis
            if first[across] == first[across + 2] == second[across] == second[across + 2]:
                if min(first[axis + 2], second[axis + 2]) > max(first[axis], second[axis]):
                    return True
        return False


def main():
    if sys.argv[1] == "--page":
        sections = []
        for path in sys.argv[2:]:
            with open(path, encoding="utf-8") as file:
                sections.append(f'<section title="{html.escape(path)}">{file.read()}</section>')
        print(PAGE % "".join(sections))
        return 0
    failed = False
    for path in sys.argv[1:]:
        picture = Picture(path)
        faults = picture.check()
        print(f"{path}: boxes: {len(picture.boxes)}, lines: {len(picture.lines)}")
        print("\n".join(faults))
        failed = failed or bool(faults)
    return 1 if failed else 0


sys.exit(main())
