package link

// Task is work that is deferred until all events of a batch have been handled.
type Task uint8

// Tasks in the order in which they run.
const (
	Restart Task = iota // an exchange that has waited asks for a connection again: before those that come now
	Start               // an exchange asks for a connection
	Flush               // what was gathered is sent
	Read                // a session takes input again
	Later               // as Read, in the next iteration
	tasks
)

// Runnable has tasks: an exchange, a link, a stream or a connection of HTTP/3.
type Runnable interface{ Run(t Task) }

// TaskSet holds which tasks of a runnable are in the queue.
type TaskSet uint8

// has reports whether a task is in the queue.
func (s TaskSet) has(t Task) bool { return s&(1<<t) != 0 }

// Clear notes that a task runs.
func (s *TaskSet) Clear(t Task) {
	if *s &^= 1 << t; t == Read {
		*s &^= 1 << Later
	}
}

// RunQueue holds the tasks of a runner, each at most once for a runnable. Deferring has two reasons. Many small writes of a batch
// become one system call. And no object is called back from within its own call, so that no method finds its state changed by what
// it has called.
type RunQueue struct {
	Lists [tasks][]Runnable
	due   int // of Later: those of the last iteration
}

// Add queues a task of r, whose set is s. It must have a set of its own for its life: the queue keeps r until the task has run.
func (q *RunQueue) Add(t Task, r Runnable, s *TaskSet) {
	if s.has(t) || t >= Read && s.has(Read+Later-t) {
		return
	}
	*s |= 1 << t
	q.Lists[t] = append(q.Lists[t], r)
}

// begin makes the tasks that were put off in the last iteration those of this one. Only the first due ones: those that events of
// this batch have put off since belong to the next, or a busy link would get two shares of one iteration.
func (q *RunQueue) begin() {
	later := q.Lists[Later]
	q.Lists[Read] = append(q.Lists[Read], later[:q.due]...)
	rest := copy(later, later[q.due:])
	clear(later[rest:])
	q.Lists[Later] = later[:rest]
}

// run runs tasks until none is left but those for the next iteration, and reports whether there are any.
func (q *RunQueue) run() (later bool) {
	for more := true; more; {
		more = false
		for t := range Later {
			if len(q.Lists[t]) == 0 {
				continue
			}
			for i := 0; i < len(q.Lists[t]); i++ {
				q.Lists[t][i].Run(t)
			}
			clear(q.Lists[t])
			q.Lists[t], more = q.Lists[t][:0], true
		}
	}
	q.due = len(q.Lists[Later])
	return q.due > 0
}
