package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/millrace/millrace/internal/logqueue"
)

// console is the output of a command.
type console struct {
	in       io.Reader // of the file name "-"
	out, err io.Writer // results; messages and progress
	colour   bool      // out is a terminal that shows colours
	live     bool      // err is a terminal: progress may be redrawn
	width    int       // columns of out; 0 is no terminal, so lines are not folded
	height   int       // lines of out
	lost     error     // the first error of writing a result
}

// terminal returns the console of the process. Colours and progress go to
// terminals only, and the variable NO_COLOR turns colours off (no-color.org).
func terminal(out, err *os.File) *console {
	tty := term.IsTerminal(int(out.Fd()))
	c := &console{in: os.Stdin, out: out, err: err, live: term.IsTerminal(int(err.Fd()))}
	c.colour = tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if w, h, e := term.GetSize(int(out.Fd())); tty && e == nil {
		c.width, c.height = w, h
	}
	return c
}

// Colours, as the numbers of SGR (ECMA-48 8.3.117).
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint returns s in a colour, where there are colours.
func (c *console) paint(sgr, s string) string {
	if !c.colour {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

// printf writes a line of the result.
func (c *console) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(c.out, format, args...); err != nil && c.lost == nil {
		c.lost = err
	}
}

// complain writes an error or a warning, under the program's name. Further lines, remedies and
// sources with a caret, keep their columns.
func (c *console) complain(err error) { fmt.Fprintf(c.err, "millrace: %v\n", err) }

// logger returns a log on the error output, of lines or of JSON objects.
func (c *console) logger(asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(c.err, nil))
	}
	return slog.New(slog.NewTextHandler(c.err, nil))
}

// logLimit bounds the log that waits for a reader that is slow: some ten thousand records.
const logLimit = 2 << 20

// logFlush is the time that a program that ends waits for the reader of its log.
const logFlush = time.Second

// queueErrors puts a queue in front of the error output, for programs that serve: one whose log is not
// read goes on. It returns the queue; done takes it away again, when all is written or logFlush is over.
func (c *console) queueErrors(asJSON bool) (q *logqueue.Writer, done func()) {
	direct := c.err
	q = logqueue.New(direct, logLimit, func(dropped uint64) []byte {
		var b bytes.Buffer
		(&console{err: &b}).logger(asJSON).Warn("log", "dropped_records", dropped, "why", "standard error was not read")
		return b.Bytes()
	})
	c.err = q
	return q, func() {
		if q.Close(logFlush) {
			c.err = direct // for the program's last words
		}
	}
}

// json writes v as the result, with its schema version, indented unless it is long.
func (c *console) json(v any) error {
	line, err := versioned(v)
	if err != nil {
		return err
	}
	return c.document(line)
}

// document writes the line of a document, indented unless it is long.
func (c *console) document(line []byte) error {
	if len(line) > indented {
		_, err := c.out.Write(line)
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, line, "", "  "); err != nil {
		return err
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

// jsonLine writes v as one line of the result.
func (c *console) jsonLine(v any) error {
	line, err := versioned(v)
	if err != nil {
		return err
	}
	_, err = c.out.Write(line)
	return err
}

// indented bounds the documents that are printed with a line for each value. In longer ones, such as the status of thousands of
// backends, nearly half of the bytes would be blanks.
const indented = 256 << 10

// schemaVersion is the value of the key "schema" in every document. Within a version keys are added, never
// renamed or removed.
const schemaVersion = 1

// versioned returns the line of an object with its schema version as the first key.
func versioned(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return withSchema(b.Bytes(), schemaVersion)
}

// warnings returns a log of a command whose error output is for people: warnings and the choice of the engine
// are messages as complain writes them, other records are left out.
func (c *console) warnings() *slog.Logger { return slog.New(warnings{c}) }

type warnings struct{ c *console }

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w warnings) WithGroup(string) slog.Handler            { return w }

// Handle implements slog.Handler.
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	text, separator, wanted := r.Message, ": ", r.Level >= slog.LevelWarn
	r.Attrs(func(a slog.Attr) bool {
		wanted = wanted || r.Message == "engine" && a.Key == "using"
		text += separator + a.Key + " " + a.Value.String()
		separator = ", "
		return true
	})
	if wanted {
		w.c.complain(errors.New(text))
	}
	return nil
}
