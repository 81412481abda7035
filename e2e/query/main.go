package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Println("refused: want a DSN and a statement")
		os.Exit(1)
	}
	if err := query(os.Args[1], os.Args[2]); err != nil {
		fmt.Println("refused", strings.Join(strings.Fields(err.Error()), " "))
		os.Exit(1)
	}
}

func query(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		var fields []string
		for _, v := range values {
			fields = append(fields, fmt.Sprint(v))
		}
		fmt.Println(strings.Join(fields, "|"))
	}
	return rows.Err()
}
