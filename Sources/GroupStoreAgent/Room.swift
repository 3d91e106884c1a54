// Raised by the first change that fills this room.
