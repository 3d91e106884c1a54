/// A position in a shadow's log: the last step that somebody knows, or knows a part of.
package struct StepPosition: Sendable, Equatable {
    /// The step's number; 0 before the first one.
    package let step: UInt64
    /// The step's `LoggedStep.fingerprint`; nil before the first step.
    package let fingerprint: UInt64?

    package init(step: UInt64, fingerprint: UInt64?) { (self.step, self.fingerprint) = (step, fingerprint) }

    package init(_ step: LoggedStep) { self.init(step: step.number, fingerprint: step.fingerprint) }
}

extension LoggedStep {
    /// Tells the step from others of its number. A shadow that was put back from a backup gives the numbers after its
    /// last step again.
    package var fingerprint: UInt64 { ShadowState.checksum([number, firstRow, rowCount, time.bitPattern]) }
}

/// The relation of a log to a position.
package enum LogContinuity: Sendable, Equatable {
    /// The log has every step after the position.
    case continuous
    /// Steps after the position, or the step that proves it, are no longer in the log.
    case trimmed
    /// The position isn't one of this log.
    case foreign

    /// - Parameters:
    ///   - first: The number of the first step in the log.
    ///   - last: The number of its last step.
    ///   - fingerprint: Returns that of a step in the log.
    init(
        after position: StepPosition, first: UInt64, last: UInt64, fingerprint: (UInt64) throws -> UInt64?
    ) rethrows {
        if position.step > last {
            self = .foreign
        } else if position.step == 0 {
            self = first == 1 ? .continuous : .trimmed
        } else if position.step < first {
            self = .trimmed
        } else {
            self = try fingerprint(position.step) == position.fingerprint ? .continuous : .foreign
        }
    }
}

/// The steps that led to a shadow's state.
package protocol StepLog {
    /// The number of the last step; 0 before the first one.
    var lastStep: UInt64 { get }
    /// The number of the first step in the log; nil if it has no file.
    func firstStep() throws -> UInt64?
    /// Returns `LoggedStep.fingerprint` of a step in the log.
    func fingerprint(of number: UInt64) throws -> UInt64?
}

extension StepLog {
    /// The position after the last step. Throws `SystemError` and `RowShadowError.damaged`.
    package func lastPosition() throws -> StepPosition {
        StepPosition(step: lastStep, fingerprint: lastStep == 0 ? nil : try fingerprint(of: lastStep))
    }

    /// Returns whether the log continues after a position. Throws `SystemError` and `RowShadowError.damaged`.
    package func continuity(after position: StepPosition) throws -> LogContinuity {
        guard let first = try firstStep() else { return .trimmed }
        return try LogContinuity(after: position, first: first, last: lastStep, fingerprint: fingerprint)
    }
}

extension RowShadow: StepLog {
    package func fingerprint(of number: UInt64) throws -> UInt64? { try step(after: number - 1)?.step.fingerprint }
}

extension LoggedSteps: StepLog {
    package func fingerprint(of number: UInt64) throws -> UInt64? {
        var found: UInt64?
        try forEach(after: number - 1) {
            found = $0.step.fingerprint
            return false
        }
        return found
    }
}
