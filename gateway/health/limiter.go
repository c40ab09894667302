package health

// limiter bounds how many probes run at once. Those that find it full wait in their order.
type limiter struct {
	limit, running int
	queue          []*task
}

// enter takes a place for t, or lets it wait; it reports whether t has the place.
func (l *limiter) enter(t *task) bool {
	if l.running < l.limit {
		l.running++
		return true
	}
	l.queue = append(l.queue, t)
	return false
}

// leave gives a place back, or to the first that waits and has not been stopped, which is
// returned.
func (l *limiter) leave() *task {
	for len(l.queue) > 0 {
		t := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if t.ctx.Err() == nil {
			return t
		}
	}
	l.running--
	l.queue = nil
	return nil
}

// The limiters. What failed last time, and may hang for its whole timeout, never takes the places of
// what answered: however many targets hang, the others are asked in time.
const (
	sockets         = iota
	suspectSockets  // of targets that failed last time
	commands        // each a process
	suspectCommands // that failed last time
	limiterKinds
)

// limiterOf returns the limiter of a probe.
func limiterOf(typ Type, failed bool) int {
	n := sockets
	if typ == TypeCommand {
		n = commands
	}
	if failed {
		n++
	}
	return n
}
