import Testing

@testable import ChangeFeed

/// What the order of events says of writes to a database in rollback mode.
@Suite struct JournalBracketTests {
    /// `c` and `m`: the journal is created, modified; `r`: removed; `w`: the database is written; `x`: closed by a writer;
    /// `s`, `S`: all is judged, without and with a journal's file; `h`: a hot journal is seen; `l`: events
    /// were lost.
    private func isWrittenOutside(_ events: String) -> Bool {
        var bracket = JournalBracket()
        for event in events {
            switch event {
            case "c": bracket.note(.journal, created: true, modified: false, removed: false, closed: false)
            case "m": bracket.note(.journal, created: false, modified: true, removed: false, closed: false)
            case "r": bracket.note(.journal, created: false, modified: false, removed: true, closed: false)
            case "w": bracket.note(.database, created: false, modified: true, removed: false, closed: false)
            case "x": bracket.note(.database, created: false, modified: false, removed: false, closed: true)
            case "l": bracket.lostEvents()
            case "h": bracket.sawHotJournal()
            default: bracket.settle(hasJournal: event == "S")
            }
        }
        return bracket.wasWrittenOutside
    }

    @Test(arguments: [
        // DELETE, also where it is judged before all events have come; a rolled back one; a recovery
        "", "cmwmr", "cmwmrx", "cs" + "mwr", "cmwrcmwr", "cmrx", "hwr", "cmwhwr",
        // PERSIST and TRUNCATE
        "cmw" + "lh" + "wr", "mwm", "mwmwm", "mwmS" + "mwm", "cmwmS" + "mwm", "x", "mmx",
    ])
    func aTransactionWritesInside(_ events: String) { #expect(!isWrittenOutside(events)) }

    @Test(arguments: [
        "w", "wx", "cmwrw", "wxcmwr", "cmwr" + "wx" + "cmwr", "cmwmS" + "wx", "mmS" + "wx", "mwm" + "wx" + "mwm",
        "hwrw", "cmw" + "l" + "wx", "mw" + "l" + "wx", "w" + "l",
    ])
    func aCopyWritesOutside(_ events: String) { #expect(isWrittenOutside(events)) }
}
