package proxy

// task is what is put off until all events of a batch have been handled.
type task uint8

// Tasks in the order in which they run.
const (
	taskRestart task = iota // an exchange that has waited asks for a connection again: before those that come now
	taskStart               // an exchange asks for a connection
	taskFlush               // what was gathered is sent
	taskRead                // a session takes input again
	taskLater               // as taskRead, in the next iteration
	tasks
)

// runnable is what has tasks: an exchange, a link, a stream or a connection of HTTP/3.
type runnable interface{ run(t task) }

// taskSet holds which tasks of a runnable are in the queue.
type taskSet uint8

// has reports whether a task is in the queue.
func (s taskSet) has(t task) bool { return s&(1<<t) != 0 }

// clear notes that a task runs.
func (s *taskSet) clear(t task) {
	if *s &^= 1 << t; t == taskRead {
		*s &^= 1 << taskLater
	}
}

// runQueue holds the tasks of a worker, each at most once for a runnable.
type runQueue struct {
	lists [tasks][]runnable
	due   int // of taskLater: those of the last iteration
}

// add queues a task of r, whose set is s. It must have a set of its own for its life: the queue keeps r until the task has run.
func (q *runQueue) add(t task, r runnable, s *taskSet) {
	if s.has(t) || t >= taskRead && s.has(taskRead+taskLater-t) {
		return
	}
	*s |= 1 << t
	q.lists[t] = append(q.lists[t], r)
}

// begin makes the tasks that were put off in the last iteration those of this one.
func (q *runQueue) begin() {
	later := q.lists[taskLater]
	q.lists[taskRead] = append(q.lists[taskRead], later[:q.due]...)
	rest := copy(later, later[q.due:])
	clear(later[rest:])
	q.lists[taskLater] = later[:rest]
}

// run runs tasks until none is left but those for the next iteration, and reports whether there are any.
func (q *runQueue) run() (later bool) {
	for more := true; more; {
		more = false
		for t := range taskLater {
			if len(q.lists[t]) == 0 {
				continue
			}
			for i := 0; i < len(q.lists[t]); i++ {
				q.lists[t][i].run(t)
			}
			clear(q.lists[t])
			q.lists[t], more = q.lists[t][:0], true
		}
	}
	q.due = len(q.lists[taskLater])
	return q.due > 0
}
