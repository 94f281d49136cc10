// Reads a part of a server's binlog with go-mysql and builds the values of all columns of all rows.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

type settings struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	User     string `json:"user"`
	Password string `json:"password"`
	File     string `json:"file"`
	End      uint32 `json:"end"`
	Passes   int    `json:"passes"`
}

type pass struct {
	Rows int     `json:"rows"`
	CPU  float64 `json:"cpu"`
	Wall float64 `json:"wall"`
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func read(asked settings) pass {
	cpu, wall := cpuSeconds(), time.Now()
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 990_005, Flavor: mysql.MariaDBFlavor, Host: asked.Host, Port: asked.Port,
		User: asked.User, Password: asked.Password, VerifyChecksum: true,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	defer syncer.Close()
	streamer, err := syncer.StartSync(mysql.Position{Name: asked.File, Pos: 4})
	if err != nil {
		panic(err)
	}
	rows := 0
	for {
		event, err := streamer.GetEvent(context.Background())
		if err != nil {
			panic(err)
		}
		if changes, ok := event.Event.(*replication.RowsEvent); ok {
			switch event.Header.EventType {
			case replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2,
				replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1:
				rows += len(changes.Rows) / 2 // the images before and after
			default:
				rows += len(changes.Rows)
			}
		}
		if event.Header.EventType != replication.FORMAT_DESCRIPTION_EVENT && event.Header.LogPos >= asked.End {
			return pass{rows, cpuSeconds() - cpu, time.Since(wall).Seconds()}
		}
	}
}

func main() {
	var asked settings
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		panic(err)
	}
	start := cpuSeconds()
	passes := []pass{}
	for range asked.Passes {
		passes = append(passes, read(asked))
	}
	told, _ := json.Marshal(map[string]any{"start_cpu": start, "passes": passes})
	fmt.Println(string(told))
}
