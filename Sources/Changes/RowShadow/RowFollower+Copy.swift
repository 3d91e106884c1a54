import ChangeFeed
import LinuxSystem

/// The making of a new copy of a store's pages.
extension RowFollower {
    /// The number of times that a copy is made if each is damaged meanwhile.
    private static let maximumAttempts = 3

    /// Makes a new shadow count, and reads its map unless a later step is to. One that is damaged meanwhile is made
    /// anew, a few times.
    func make(readsMap: Bool = true, _ whenFilled: () throws -> Void = {}) throws {
        var attempts = 0
        while true {
            attempts += 1
            do {
                try fill()
                try whenFilled()
                try shadow.begin()
                return map = readsMap ? try shadow.map() : nil
            } catch RowShadowError.damaged(let path) {
                guard attempts < Self.maximumAttempts else { throw RowShadowError.damaged(path) }
                damagedCopies += 1
                losePosition()
                shadow = try RowShadow(shadow.slot, of: self.path)
            }
        }
    }

    /// Fills a new shadow with one state of the store.
    private func fill() throws {
        defer { files?.closeDatabase() }
        var deadline = Deadline(after: patience)
        var isFilled = false
        while true {
            let wasFilled = isFilled
            defer { if isFilled, !wasFilled { deadline = Deadline(after: .seconds(30)) } }
            do {
                if !isFilled { self.files = try StoreFiles.current(directory, name, unless: nil) }
                guard let files else { break }
                if let (staged, view) = try isFilled ? stage(files) : fill(files, &isFilled) {
                    try shadow.advance(to: staged, pageSize: staged.pageSize, nil, nil, .utf8, identity: files.identity)
                    record(view)
                    break
                }
            } catch is Disturbed {} catch let error as SystemError where error.isPassing { losePosition() }
            guard !deadline.hasPassed || isFilled && !wasFilled else { throw RowShadowError.busy(path) }
            pause(.milliseconds(2))
        }
    }

    /// Fills a new shadow with the pages of a view, and returns what differs from it, as `stage`. What was read while
    /// the view stayed as it was is the store's state, and nothing is compared.
    private func fill(_ files: StoreFiles, _ isFilled: inout Bool) throws -> (StagedPages, StoreView?)? {
        watchJournals(files)
        guard let view = try look(files) else { return nil }
        let isConfirmed: Bool? = try capturing(since: view) {
            try shadow.fill(from: view, of: path, files.identity, limit: limit, meanwhile: keepUp)
            isFilled = true
            return try view.isConfirmed() ? true : nil
        }
        let staged = shadow.stage(pageSize: view.pageSize, pageCount: view.pageCount)
        try staged.finish()
        if isConfirmed == true { return (staged, view) }
        return try stageAgain(staged, files).map { ($0, nil) }
    }
}
