import GroupContainers

extension FileCoordinator {
    /// Registers a presenter for the item at its ``FilePresenter/presentedItemURL``, until
    /// ``removeFilePresenter(_:in:)``.
    ///
    /// Returns once every access that would have asked the presenter has ended. Adding a presenter twice registers it
    /// once.
    ///
    /// Returns which processes ask the presenter. Without an agent that serves the group, or if the agent doesn't
    /// answer within two seconds, that is ``FilePresenterRegistration/waiting(reason:)``: only this process asks the
    /// presenter until an agent does. That is no error, because an agent may start later. But it must not pass
    /// unnoticed: a program that ignores the result says so with `_ =`.
    ///
    ///     let registration = try await FileCoordinator.addFilePresenter(document, in: container)
    ///     if registration != .registered { print(registration) }
    ///
    /// Throws ``FileCoordinationError``, with the code ``FileCoordinationError/Code-swift.enum/agent`` if the agent
    /// refuses, and `CancellationError`. The presenter is then not registered.
    ///
    /// - Important: A presenter stays registered, and in memory, until ``removeFilePresenter(_:in:)``.
    public static func addFilePresenter(
        _ presenter: any FilePresenter, in container: GroupContainer
    ) async throws -> FilePresenterRegistration {
        let presenters = RegisteredPresenters.shared(in: container)
        let registered = try await presenters.add(presenter, in: container)
        let registration = registered.registration
        guard case .refused(let reason) = registration else { return registration }
        presenters.remove(presenter)
        throw FileCoordinationError(.agent, reason, remedy: "see the agent's log, or groupstore doctor")
    }

    /// Returns which processes ask the presenter, or nil if it isn't registered.
    public static func registration(
        of presenter: any FilePresenter, in container: GroupContainer
    ) -> FilePresenterRegistration? {
        RegisteredPresenters.shared(in: container).registration(of: presenter)?.registration
    }

    /// Ends the presenter's registration. A method of the presenter that is running continues; no further one is
    /// called.
    public static func removeFilePresenter(_ presenter: any FilePresenter, in container: GroupContainer) {
        RegisteredPresenters.shared(in: container).remove(presenter)
    }
}
