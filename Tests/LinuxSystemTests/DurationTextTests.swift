import LinuxSystem
import Testing

@Suite struct DurationTextTests {
    @Test(
        arguments: [
            ("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("7d", 604_800), ("0", 0), ("30", 30),
            ("0.5", 0.5),
        ] as [(String, Double)])
    func readsANumberWithOrWithoutItsUnit(_ text: String, _ seconds: Double) {
        #expect(DurationText.seconds(text) == seconds)
        let hasUnit = text.last?.isLetter == true
        #expect(DurationText.seconds(text, isUnitRequired: true) == (hasUnit ? seconds : nil))
    }

    @Test(arguments: ["", "s", "ms", "-1s", "30 s", "1e3", "0x10", "3x", "nan", "inf", "1.2.3s", "٣s", "30S"])
    func refusesAnythingElse(_ text: String) {
        #expect(DurationText.seconds(text) == nil)
    }

    @Test func refusesADurationBeyondAllNumbers() {
        #expect(DurationText.seconds(String(repeating: "9", count: 400) + "d") == nil)
    }
}

@Suite struct CountedTests {
    @Test func agreesWithItsNumber() {
        #expect([0, 1, 2].map { Counted($0, "group").description } == ["0 groups", "1 group", "2 groups"])
        #expect([1, 3].map { Counted($0, "entity", "entities").description } == ["1 entity", "3 entities"])
    }
}
