import LinuxSystem

/// The steps in a shadow's log, which is read beside the program that writes it: without a lock or a write.
package struct LoggedSteps {
    /// The number in the shadow's tokens.
    package let epoch: UInt64
    /// The number of the last step.
    package let lastStep: UInt64
    /// The files of the log, by their first steps, and the numbers after their last steps.
    private let files: [(steps: Range<UInt64>, file: OwnFile)]

    /// Opens the log. Returns nil if the directory has no shadow that counts. Throws `SystemError`.
    static func open(_ directory: Directory) throws(SystemError) -> LoggedSteps? {
        // The oldest file may be removed meanwhile.
        for _ in 0..<5 {
            do throws(SystemError) { return try openFiles(directory) } catch {
                guard error.errno == .noSuchFileOrDirectory else { throw error }
            }
        }
        return try openFiles(directory)
    }

    private static func openFiles(_ directory: Directory) throws(SystemError) -> LoggedSteps? {
        guard let state = try ShadowState.current(in: directory) else { return nil }
        let starts = try directory.names().compactMap(ShadowName.firstStep).sorted().filter { $0 <= state.step }
        var files: [(steps: Range<UInt64>, file: OwnFile)] = []
        for (place, first) in starts.enumerated() {
            let end = place + 1 < starts.count ? starts[place + 1] : state.step + 1
            files.append((first..<end, try OwnFile(reading: ShadowName.log(first), in: directory)))
        }
        return LoggedSteps(epoch: state.epoch, lastStep: state.step, files: files)
    }

    package func firstStep() -> UInt64? { files.first?.steps.lowerBound }

    /// Calls `body` with each step after that one, in order, until it returns false.
    ///
    /// Throws `SystemError` and `RowShadowError.damaged`.
    package func forEach(after step: UInt64 = 0, _ body: (StepReader) throws -> Bool) throws {
        for (steps, file) in files where steps.upperBound > step + 1 {
            var offset: Int64 = 0
            for number in steps {
                let reader = try StepReader(file, at: offset)
                guard reader.step.number == number else { throw RowShadowError.damaged(file.path) }
                if number > step, try !body(reader) { return }
                offset = reader.next
            }
        }
    }
}

extension ShadowPlace {
    /// Returns the logs of a store's shadows that count. Throws `SystemError`.
    package func logs() throws(SystemError) -> [LoggedSteps] {
        var logs: [LoggedSteps] = []
        for directory in try directories() { if let log = try LoggedSteps.open(directory) { logs.append(log) } }
        return logs
    }
}
