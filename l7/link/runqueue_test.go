package link

import (
	"slices"
	"strings"
	"testing"
)

// logged is a runnable that notes what runs, and may add tasks then.
type logged struct {
	name  string
	tasks TaskSet
	log   *[]string
	then  func(t Task)
}

func (l *logged) Run(t Task) {
	l.tasks.Clear(t)
	*l.log = append(*l.log, l.name+[tasks]string{"restart", "start", "flush", "read", "later"}[t])
	if l.then != nil {
		l.then(t)
	}
}

// Tasks run once for each time that they were added since they ran, those that asked before first, and reading comes last.
func TestTasksRunInOrder(t *testing.T) {
	var q RunQueue
	var log []string
	a, b := &logged{name: "a", log: &log}, &logged{name: "b", log: &log}
	for _, k := range []Task{Read, Flush, Start, Restart, Flush, Later} {
		q.Add(k, a, &a.tasks)
		q.Add(k, b, &b.tasks)
	}
	b.then = func(k Task) {
		if k == Read {
			b.then = nil
			q.Add(Start, a, &a.tasks)
			q.Add(Read, b, &b.tasks)
		}
	}
	if q.begin(); q.run() {
		t.Error("tasks are left")
	}
	want := strings.Fields("arestart brestart astart bstart aflush bflush aread bread bread astart")
	if !slices.Equal(log, want) || a.tasks|b.tasks != 0 {
		t.Errorf("%v, want %v; left: %b %b", log, want, a.tasks, b.tasks)
	}
}

// What is put off runs in the iteration after that in which it was added, whether that was before or in its tasks.
func TestTasksOfTheNextIteration(t *testing.T) {
	var q RunQueue
	var log []string
	a, b := &logged{name: "a", log: &log}, &logged{name: "b", log: &log}
	q.Add(Later, a, &a.tasks) // by an event of the first iteration
	q.Add(Read, a, &a.tasks)  // it waits already
	q.Add(Flush, b, &b.tasks)
	b.then = func(Task) { q.Add(Later, b, &b.tasks) }
	q.begin()
	if later := q.run(); !later || !slices.Equal(log, []string{"bflush"}) {
		t.Fatalf("first iteration: %v, later %v", log, later)
	}
	b.then = nil
	c := &logged{name: "c", log: &log}
	q.Add(Later, c, &c.tasks) // by an event of the second one
	q.begin()
	if later := q.run(); !later || !slices.Equal(log, []string{"bflush", "aread", "bread"}) {
		t.Fatalf("second iteration: %v, later %v", log, later)
	}
	q.begin()
	if later := q.run(); later || !slices.Equal(log[3:], []string{"cread"}) || a.tasks|b.tasks|c.tasks != 0 {
		t.Fatalf("third iteration: %v, later %v", log, later)
	}
}
