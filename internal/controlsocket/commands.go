package controlsocket

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
)

// Commands routes the requests of a control socket to functions, and answers their errors with the status of Code.
type Commands struct {
	Log  *slog.Logger
	Name string          // message of its log records
	Code func(error) int // HTTP status of an error that is no *Error

	mux http.ServeMux
}

// ServeHTTP serves a request. One that no command has gets 404.
func (c *Commands) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := c.mux.Handler(r); pattern == "" {
		c.Refuse(w, &Error{Message: fmt.Sprintf("no %s %s here", r.Method, r.URL.Path), Code: http.StatusNotFound})
		return
	}
	c.mux.ServeHTTP(w, r)
}

// Handle has h serve a pattern of http.ServeMux.
func (c *Commands) Handle(pattern string, h http.HandlerFunc) { c.mux.HandleFunc(pattern, h) }

// Get registers f for GET path; the reply is its result.
func (c *Commands) Get(path string, f func(*http.Request) (any, error)) {
	c.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, f) })
}

// Post registers f for POST path; the reply is its result. Nothing is logged: an f that changes something calls Record itself.
func (c *Commands) Post(path string, f func(*http.Request) (any, error)) {
	c.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, f) })
}

func (c *Commands) answer(w http.ResponseWriter, r *http.Request, f func(*http.Request) (any, error)) {
	v, err := f(r)
	if err != nil {
		c.Refuse(w, err)
		return
	}
	Reply(w, v)
}

// PostLogged registers f for POST path, and logs each call with its error as the command name. The reply is an empty object.
func (c *Commands) PostLogged(path, name string, f func(*http.Request) error) {
	c.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		err := f(r)
		c.Record(name, err)
		if err != nil {
			c.Refuse(w, err)
			return
		}
		Reply(w, struct{}{})
	})
}

// Record logs the result of a command. args are attributes of a record of success.
func (c *Commands) Record(name string, err error, args ...any) {
	if err != nil {
		c.Log.Error(c.Name, "command", name, "error", err.Error())
		return
	}
	c.Log.Info(c.Name, append([]any{"command", name, "result", "done"}, args...)...)
}

// Refuse answers with an error.
func (c *Commands) Refuse(w http.ResponseWriter, err error) {
	code := 0
	if e := new(Error); errors.As(err, &e) {
		code = e.Code
	} else {
		code = c.Code(err)
	}
	ReplyError(w, code, err.Error())
}

// BadRequest returns an *Error with status 400.
func BadRequest(format string, args ...any) error {
	return &Error{Message: fmt.Errorf(format, args...).Error(), Code: http.StatusBadRequest}
}
