package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

const (
	// Task threads that the runs are spread over.
	taskThreads = 100_000
	// Metadata of a run, in bytes of JSON.
	metadataBytes = 200
	letters       = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// Work is what is written, whoever sends it: runs with ids that are new in every ledger, all with the same metadata.
type Work struct {
	metadata map[string]any
}

// A Run is one that a caller takes from its start to its end.
type Run struct {
	ID, TaskThreadID string
}

// NewWork draws the metadata. No part of it repeats, so that no store can make it smaller than a user's own.
func NewWork() *Work {
	metadata := map[string]any{"note": "", "url": "https://example.com/x"}
	note := make([]byte, metadataBytes-len(text(metadata)))
	for place := range note {
		note[place] = letters[rand.IntN(len(letters))]
	}
	metadata["note"] = string(note)
	return &Work{metadata}
}

// Metadata is every run's, as JSON has it.
func (w *Work) Metadata() map[string]any { return w.metadata }

// MetadataJSON is the same as text.
func (w *Work) MetadataJSON() string { return text(w.metadata) }

// Next draws a run.
func (w *Work) Next() Run {
	return Run{
		ID:           fmt.Sprintf("run-%016x", rand.Uint64()),
		TaskThreadID: fmt.Sprintf("thread-%d", rand.IntN(taskThreads)),
	}
}

func text(metadata map[string]any) string {
	json, err := json.Marshal(metadata)
	if err != nil {
		panic(err) // Texts alone are in it.
	}
	return string(json)
}
