"""Operations of the SQL engines, written once: generators that yield statements and return rows."""
