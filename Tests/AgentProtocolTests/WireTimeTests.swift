import Testing

@testable import AgentProtocol

@Suite struct WireTimeTests {
    @Test(arguments: [
        (0, "1970-01-01T00:00:00.000Z"), (1_795_311_351.17, "2026-11-22T01:35:51.170Z"),
        (1_795_311_351.9996, "2026-11-22T01:35:52.000Z"), (-0.25, "1969-12-31T23:59:59.750Z"),
        (951_868_799, "2000-02-29T23:59:59.000Z"), (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        (-12_212_553_600, "1583-01-01T00:00:00.000Z"), (253_402_300_799.5, "9999-12-31T23:59:59.500Z"),
    ])
    func formatsISO8601WithMilliseconds(_ seconds: Double, _ text: String) throws {
        #expect(WireTime.text(seconds) == text)
        #expect(abs(try #require(WireTime.seconds(text)) - seconds) < 0.001)
    }

    /// A store may contain any value where a time should be.
    @Test(arguments: [Double.nan, .infinity, -.infinity, 1e300, -1e300, -62_135_596_800, 253_402_300_800])
    func encodesAnInvalidTimeAsNull(_ seconds: Double) { #expect(JSONValue.time(seconds) == .null) }

    @Test(arguments: ["", "Z", "2026-11-22", "2026-11-22T01:35:51", "2026-11-22T01:35:51.Z", "2026-11-22T01:35:51.-1Z"])
    func rejectsInvalidText(_ text: String) { #expect(WireTime.seconds(text) == nil) }

    @Test func parsesATimeWithoutAFraction() {
        #expect(WireTime.seconds("1970-01-01T00:00:07Z") == 7)
    }
}
