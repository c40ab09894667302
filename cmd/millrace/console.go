package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// console is where a verb writes to.
type console struct {
	out, err io.Writer // results; messages and progress
	colour   bool      // out is a terminal that shows colours
	live     bool      // err is a terminal: progress may be redrawn
	width    int       // columns of out; 0 is no terminal, so lines are not folded
	lost     error     // why a part of the result could not be written
}

// terminal returns the console of the process. Colours and progress are for people: they go to
// terminals only, and the variable NO_COLOR turns colours off (no-color.org).
func terminal(out, err *os.File) *console {
	tty := term.IsTerminal(int(out.Fd()))
	c := &console{out: out, err: err, live: term.IsTerminal(int(err.Fd()))}
	c.colour = tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if w, _, e := term.GetSize(int(out.Fd())); tty && e == nil {
		c.width = w
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

// complain writes a message for people, under the program's name. Further lines, remedies and
// sources with a caret, keep their columns.
func (c *console) complain(err error) { fmt.Fprintf(c.err, "millrace: %v\n", err) }

// logger returns a log on the error output, of lines or of JSON objects.
func (c *console) logger(asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(c.err, nil))
	}
	return slog.New(slog.NewTextHandler(c.err, nil))
}

// json writes v as the result, indented.
func (c *console) json(v any) error {
	e := json.NewEncoder(c.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// jsonLine writes v as one line of the result.
func (c *console) jsonLine(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
