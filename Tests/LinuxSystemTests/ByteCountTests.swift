import LinuxSystem
import Testing

@Suite struct ByteCountTests {
    @Test(
        arguments: [
            (0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (8192, "8.2 KB"), (999_949, "999.9 KB"), (999_950, "1.0 MB"),
            (12_345_678, "12.3 MB"), (5_000_000_000, "5.0 GB"), (Int64.max, "9223372.0 TB"),
        ] as [(Int64, String)])
    func usesTheUnitWithAtMostFourDigits(_ bytes: Int64, _ text: String) {
        #expect(ByteCount(bytes).description == text)
    }
}
